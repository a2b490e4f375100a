//! Text against the stock `ovs-ofctl`, which is asked to read and print the same flows.

mod flows;
mod oracle;
mod random;
