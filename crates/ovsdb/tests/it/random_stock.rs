//! Random transactions on random schemas, in ours and in the stock server.

use crate::common::pair::Pair;
use crate::common::random::{Features, Random, schema, transaction};

#[test]
fn random_transactions_do_what_the_stock_server_does() {
    let seeds = testkit::cases("ovsdb::random_transactions_do_what_the_stock_server_does", 20);
    let mut in_force = 0;
    for seed in 0..u64::from(seeds) {
        let mut random = Random::new(seed);
        // Weak references differ where the stock server forgets them; hand-written transactions compare
        // those.
        let schema = schema(&mut random, Features { weak_references: false });
        let mut pair = Pair::new(&schema);
        for _ in 0..50 {
            let reply = pair.both(transaction(&mut random, &schema));
            in_force +=
                usize::from(reply.as_array().unwrap().iter().all(|result| result.get("error").is_none()));
        }
    }
    assert!(in_force > seeds as usize * 10, "{in_force}");
}
