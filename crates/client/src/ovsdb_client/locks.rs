//! Locks: requests one, and reports what happens to it.

use serde_json::json;

use super::call::{Call, print};
use super::control::{self, Control, Next};
use super::rpc::Heard;

pub(super) async fn run(call: &mut Call<'_>, what: &str) -> Result<(), String> {
    match call.server.try_call(what, json!([call.args[0]])).await? {
        Ok(reply) if what != "unlock" => call.print_json(&reply),
        _ => {}
    }
    let mut control = Control::start(call.detached, control::LOCKS)?;
    call.daemon.complete();
    loop {
        match call.server.hear(&mut control).await? {
            Heard::Notification(method, params) => {
                print(&format!("{method}\n"));
                call.print_json(&params);
            }
            Heard::Reply(result) => call.print_json(&result),
            Heard::Asked(asked) => match call.server.obey(&mut control, asked).await? {
                Next::GoOn => {}
                Next::End => return Ok(()),
            },
        }
    }
}
