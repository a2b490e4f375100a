//! The names that one transaction gives to rows before they have UUIDs (RFC 7047 section 5.1 `<named-uuid>`).

use std::collections::HashMap;

use crate::error::{Error, syntax_error};
use crate::uuid::{Uuid, UuidGenerator};

/// The names of one transaction. A name may be used before the insertion that defines it: it gets its UUID on
/// its first use.
#[derive(Debug)]
pub struct Symbols<'g> {
    names: HashMap<String, Symbol>,
    generator: &'g mut UuidGenerator,
}

#[derive(Debug)]
struct Symbol {
    uuid: Uuid,
    is_defined: bool,
}

impl<'g> Symbols<'g> {
    /// No symbols yet. UUIDs come from `generator`.
    pub fn new(generator: &'g mut UuidGenerator) -> Symbols<'g> {
        Symbols { names: HashMap::new(), generator }
    }

    /// The UUID of `name`, which need not be defined yet.
    pub fn reference(&mut self, name: &str) -> Uuid {
        if let Some(symbol) = self.names.get(name) {
            return symbol.uuid;
        }
        let uuid = self.generator.next_uuid();
        self.names.insert(name.to_owned(), Symbol { uuid, is_defined: false });
        uuid
    }

    /// Defines `name`: the row's UUID is `wanted`, or else the one that earlier uses got, or else a new one.
    /// `Err` if the name is already defined.
    pub fn define(&mut self, name: &str, wanted: Option<Uuid>) -> Result<Uuid, Error> {
        if let Some(symbol) = self.names.get_mut(name) {
            if symbol.is_defined {
                let details = "This \"uuid-name\" appeared on an earlier \"insert\" operation.";
                return Err(Error { name: "duplicate uuid-name".into(), ..syntax_error(&name, details) });
            }
            symbol.is_defined = true;
            if let Some(wanted) = wanted {
                symbol.uuid = wanted;
            }
            return Ok(symbol.uuid);
        }
        let uuid = wanted.unwrap_or_else(|| self.generator.next_uuid());
        self.names.insert(name.to_owned(), Symbol { uuid, is_defined: true });
        Ok(uuid)
    }

    /// A new UUID, without a name.
    pub fn fresh(&mut self) -> Uuid {
        self.generator.next_uuid()
    }
}
