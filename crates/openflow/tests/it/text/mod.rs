//! Text against the stock `ovs-ofctl`, which is asked to read and print the same flows.

mod fields;
mod flows;
mod oracle;
mod printed;
mod random;
