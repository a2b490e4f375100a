//! End-to-end tests: the real binary, spoken to by the stock tools, one module per subject. What measures
//! stands in files of its own.

mod actions_beside_stock;
mod applications;
mod bundles;
mod clients;
mod common;
mod connection_tracking;
mod continuations;
mod controller;
mod controllers_beside_stock;
#[path = "../controllers_rig/mod.rs"]
mod controllers_rig;
mod daemon_options;
mod database;
mod datapath_by_hand;
mod datapath_commands;
mod demo;
mod doctor;
mod e2e_controllers;
mod e2e_daemon;
mod e2e_dummies;
mod e2e_openflow;
mod example;
mod failover;
mod figures;
mod firewall;
#[path = "../firewall_rig/mod.rs"]
mod firewall_rig;
mod flow_removed;
mod fragments;
mod groups;
mod guest;
mod installed;
mod logs;
mod long_changes;
mod long_reports;
mod many_meters;
mod monitor_control;
mod numa;
mod ofctl;
mod operator_guide;
mod overload;
mod ovs_ctl;
mod ovsdb_kill;
mod ovsdb_server;
mod ovsdb_tool;
mod pair;
mod pipeline_beside_stock;
mod ports_guide;
mod programs;
mod qemu;
mod shown_in_every_version;
mod stopped_time;
mod tables;
mod tutorial;
mod unixctl;
