# Starts a database server and a switch, and has mininet.py use them. Whoever runs this gives it namespaces of its own, with which
# all that it starts ends.
# Mininet is a package for the Python of the system.
set -eu
ip link set lo up
ovsdb-tool create "$OVS_DBDIR/conf.db" /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server --detach --pidfile --log-file -vconsole:off --remote="punix:$OVS_RUNDIR/db.sock" "$OVS_DBDIR/conf.db"
ovs-vsctl --no-wait init
ovs-vswitchd --detach --pidfile --log-file -vconsole:off
/usr/bin/python3 "$(dirname "$0")/mininet_networks.py"
