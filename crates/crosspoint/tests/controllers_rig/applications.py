"""Runs applications of os-ken, unchanged, on the os-ken that is installed.

Usage: applications.py DIRECTORY APPLICATION... OPTION...

DIRECTORY holds os-ken's applications (os_ken/app of 1.4.1, the last release that has them), APPLICATION is the name of a
module there, OPTION one of os-ken's command line.
"""

import os
import sys

# Applications that serve HTTP need it.
os.environ["OSKEN_HUB_TYPE"] = "eventlet"
import eventlet

eventlet.monkey_patch()
import eventlet.wsgi

# Later releases of eventlet lack this name, which the applications' HTTP server imports.
eventlet.wsgi.ALREADY_HANDLED = object()

import importlib

import os_ken.app
from os_ken import cfg, log
from os_ken.base import app_manager
from os_ken.controller import controller  # noqa: F401 (registers options)
from os_ken.lib import hub


def main():
    directory, *rest = sys.argv[1:]
    names = [f"os_ken.app.{word}" for word in rest if not word.startswith("--")]
    os_ken.app.__path__.append(directory)
    # Modules register their options when they are imported, which must be before those are read.
    for name in [*names, "os_ken.topology.switches"]:
        importlib.import_module(name)
    wsgi = importlib.import_module("os_ken.app.wsgi")
    cfg.CONF(args=[word for word in rest if word.startswith("--")], project="os_ken", version="test")
    log.init_log()
    manager = app_manager.AppManager.get_instance()
    manager.load_apps([*names, "os_ken.controller.ofp_handler"])
    services = manager.instantiate_apps(**manager.create_contexts())
    http = wsgi.start_service(manager)
    hub.joinall(services + ([hub.spawn(http)] if http else []))


main()
