//! What a `tracing` event says.

use std::fmt::{self, Write};
use tracing::Event;
use tracing::field::{Field, Visit};

/// The message of an event, and its other fields behind it. Of one with the field `has_lines` all control
/// characters of the message are its own.
pub fn of(event: &Event<'_>) -> (String, bool) {
    #[derive(Default)]
    struct Text {
        message: String,
        fields: String,
        has_lines: bool,
    }
    impl Visit for Text {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            let _ = match field.name() {
                "has_lines" => {
                    self.has_lines = true;
                    Ok(())
                }
                "message" => write!(self.message, "{value:?}"),
                name => write!(self.fields, " {name}={value:?}"),
            };
        }
    }
    let mut text = Text::default();
    event.record(&mut text);
    (text.message + &text.fields, text.has_lines)
}
