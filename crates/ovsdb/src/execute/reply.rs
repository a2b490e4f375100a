//! The results of operations, as in the "result" of a `transact` reply (RFC 7047 section 5.2).

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::Error;
use crate::uuid::Uuid;

/// One element for each operation, and one more where the commit failed, or the log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply(pub Vec<OpResult>);

/// The result of an operation. As JSON it is an object, or null.
#[derive(Clone, Debug, PartialEq)]
pub enum OpResult {
    /// An earlier one failed.
    NotRun,
    /// `{}`.
    Done,
    /// How many rows match: `{"count": N}`.
    Count(usize),
    /// The row that was inserted: `{"uuid": ["uuid", TEXT]}`.
    Inserted(Uuid),
    /// `{"rows": […]}`.
    Rows(Vec<RowText>),
    /// Why not.
    Failed(Error),
}

/// The selected columns of a row: a JSON object, as text. As a tree it would take ten times as much memory.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(transparent)]
pub struct RowText(pub Box<RawValue>);

impl PartialEq for RowText {
    fn eq(&self, other: &RowText) -> bool {
        self.0.get() == other.0.get()
    }
}

impl RowText {
    /// The memory that it takes, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<RowText>() + self.0.get().len()
    }
}

impl Reply {
    /// The memory that it takes, in bytes.
    pub fn bytes(&self) -> usize {
        let heap = |result: &OpResult| match result {
            OpResult::Rows(rows) => rows.iter().map(RowText::bytes).sum(),
            OpResult::Failed(error) => error.syntax.as_ref().map_or(0, |text| text.len()),
            _ => 0,
        };
        size_of_val(&self.0[..]) + self.0.iter().map(heap).sum::<usize>()
    }

    /// Its JSON.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("it has a form in JSON")
    }
}

impl Serialize for Reply {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.0)
    }
}

impl Serialize for OpResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let OpResult::NotRun = self {
            return serializer.serialize_unit();
        }
        let mut members = serializer.serialize_map(None)?;
        match self {
            OpResult::NotRun | OpResult::Done => {}
            OpResult::Count(count) => members.serialize_entry("count", count)?,
            OpResult::Inserted(uuid) => {
                let text = uuid.text();
                let text = std::str::from_utf8(&text).unwrap_or_default();
                members.serialize_entry("uuid", &("uuid", text))?;
            }
            OpResult::Rows(rows) => members.serialize_entry("rows", rows)?,
            OpResult::Failed(error) => {
                // Sorted by name, as everywhere.
                if let Some(details) = &error.details {
                    members.serialize_entry("details", details)?;
                }
                members.serialize_entry("error", &error.name)?;
                if let Some(syntax) = &error.syntax {
                    members.serialize_entry("syntax", syntax)?;
                }
            }
        }
        members.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn results_are_written_with_their_members_by_name() {
        let error =
            Error { details: Some("why".into()), syntax: Some("[1]".into()), ..Error::bare("aborted") };
        let row = RowText(crate::jsonrpc::raw(&json!({"a": 1})));
        let reply = Reply(vec![
            OpResult::Done,
            OpResult::Count(7),
            OpResult::Inserted(Uuid::ZERO),
            OpResult::Rows(vec![row]),
            OpResult::Failed(error.clone()),
            OpResult::Failed(Error::bare("aborted")),
            OpResult::NotRun,
        ]);
        let json = json!([
            {}, {"count": 7}, {"uuid": ["uuid", Uuid::ZERO.to_string()]}, {"rows": [{"a": 1}]}, error.to_json(),
            {"error": "aborted"}, null
        ]);
        assert_eq!(serde_json::to_string(&reply).unwrap(), json.to_string());
        assert_eq!(reply.to_json(), json);
    }
}
