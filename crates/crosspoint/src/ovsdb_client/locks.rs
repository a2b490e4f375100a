//! Locks: asks, and then tells what becomes of it.

use serde_json::json;

use super::{Call, print};

pub(super) async fn run(call: &mut Call<'_>, what: &str) -> Result<(), String> {
    match call.server.try_call(what, json!([call.args[0]])).await? {
        Ok(reply) if what != "unlock" => call.print_json(&reply),
        _ => {}
    }
    call.daemon.complete();
    loop {
        let (method, params) = call.server.notification().await?;
        print(&format!("{method}\n"));
        call.print_json(&params);
    }
}
