//! JSON of a request: a tree whose strings point into the text that it was parsed from.
//!
//! `serde_json::Value` allocates memory for each string and for the tree of each object's members: for a
//! small transaction that is most of the cost of parsing. Here strings without escapes are borrowed, and the
//! members of an object are a sorted list. Written as text, it equals the same `Value`: members sorted by
//! name, and of repeated members the last one.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::{Number, Value};

/// A JSON value.
#[derive(Clone, PartialEq, Debug)]
pub enum Json<'a> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// Within 64 bits, or a double.
    Number(Number),
    /// A string.
    String(Cow<'a, str>),
    /// An array.
    Array(Vec<Json<'a>>),
    /// An object: by name, each name once.
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

impl<'a> Json<'a> {
    /// The elements of an array.
    pub fn as_array(&self) -> Option<&[Json<'a>]> {
        if let Json::Array(elements) = self { Some(elements) } else { None }
    }

    /// The members of an object, by name.
    pub fn as_object(&self) -> Option<&[(Cow<'a, str>, Json<'a>)]> {
        if let Json::Object(members) = self { Some(members) } else { None }
    }

    /// A string.
    pub fn as_str(&self) -> Option<&str> {
        if let Json::String(text) = self { Some(text) } else { None }
    }

    /// The memory that it uses besides its own place, in bytes, including a string's, borrowed or not.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Json::Null | Json::Bool(_) | Json::Number(_) => 0,
            Json::String(text) => text.len(),
            Json::Array(elements) => {
                size_of_val(&elements[..]) + elements.iter().map(Json::heap_bytes).sum::<usize>()
            }
            Json::Object(members) => {
                let each = members.iter().map(|(name, value)| name.len() + value.heap_bytes());
                size_of_val(&members[..]) + each.sum::<usize>()
            }
        }
    }

    /// Whether a string in it, or a member's name, has this character.
    pub(crate) fn has(&self, c: char) -> bool {
        match self {
            Json::Null | Json::Bool(_) | Json::Number(_) => false,
            Json::String(text) => text.contains(c),
            Json::Array(elements) => elements.iter().any(|element| element.has(c)),
            Json::Object(members) => members.iter().any(|(name, value)| name.contains(c) || value.has(c)),
        }
    }

    /// The same, with all of its memory.
    pub fn into_owned(self) -> Json<'static> {
        let own = |text: Cow<'a, str>| Cow::Owned(text.into_owned());
        match self {
            Json::Null => Json::Null,
            Json::Bool(value) => Json::Bool(value),
            Json::Number(number) => Json::Number(number),
            Json::String(text) => Json::String(own(text)),
            Json::Array(elements) => Json::Array(elements.into_iter().map(Json::into_owned).collect()),
            Json::Object(members) => Json::Object(
                members.into_iter().map(|(name, value)| (own(name), value.into_owned())).collect(),
            ),
        }
    }
}

impl<'a> From<&'a Value> for Json<'a> {
    fn from(value: &'a Value) -> Json<'a> {
        match value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Number(number) => Json::Number(number.clone()),
            Value::String(text) => Json::String(Cow::Borrowed(text)),
            Value::Array(elements) => Json::Array(elements.iter().map(Json::from).collect()),
            Value::Object(members) => {
                let members =
                    members.iter().map(|(name, value)| (Cow::Borrowed(name.as_str()), value.into()));
                Json::Object(sorted(members.collect()))
            }
        }
    }
}

/// Sorted by name; of repeated names the last one stays.
fn sorted<'a>(mut members: Vec<(Cow<'a, str>, Json<'a>)>) -> Vec<(Cow<'a, str>, Json<'a>)> {
    if !members.is_sorted_by(|a, b| a.0 < b.0) {
        // The sort leaves equal names in their order.
        members.sort_by(|a, b| a.0.cmp(&b.0));
        members.dedup_by(|later, earlier| {
            let is_same = later.0 == earlier.0;
            if is_same {
                std::mem::swap(later, earlier);
            }
            is_same
        });
    }
    members
}

impl Serialize for Json<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Json::Null => serializer.serialize_unit(),
            Json::Bool(value) => serializer.serialize_bool(*value),
            Json::Number(number) => number.serialize(serializer),
            Json::String(text) => serializer.serialize_str(text),
            Json::Array(elements) => serializer.collect_seq(elements),
            Json::Object(members) => {
                serializer.collect_map(members.iter().map(|(name, value)| (name, value)))
            }
        }
    }
}

impl<'de: 'a, 'a> de::Deserialize<'de> for Json<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Json<'a>, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Json<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any JSON value")
            }

            fn visit_unit<E>(self) -> Result<Json<'de>, E> {
                Ok(Json::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
                Ok(Json::Bool(value))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Json<'de>, E> {
                Ok(Json::Number(value.into()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
                Ok(Json::Number(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Json<'de>, E> {
                Ok(Number::from_f64(value).map_or(Json::Null, Json::Number))
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Json<'de>, E> {
                Ok(Json::String(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Json<'de>, E> {
                Ok(Json::String(Cow::Owned(text.to_owned())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json<'de>, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = seq.next_element()? {
                    elements.push(element);
                }
                Ok(Json::Array(elements))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some((Text(name), value)) = map.next_entry()? {
                    members.push((name, value));
                }
                Ok(Json::Object(sorted(members)))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// A string, which is a part of what it was read from unless it has escapes.
#[derive(serde::Deserialize)]
pub(crate) struct Text<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_and_written_as_a_value_is() {
        for text in [
            "null",
            "[true,false,[],{},\"\",\"a\\n\\u00e4\\ud83d\\ude00\",\"ä\"]",
            "[0,-0,-1,18446744073709551615,9223372036854775808,-9223372036854775808,1.0,1e3,0.1,-0.0,1e300,12345678901234567890123]",
            "{\"b\":1,\"a\":{\"z\":null,\"y\":[{}]},\"\\u0061b\":2}",
            "{\"a\":1,\"b\":2,\"a\":3,\"b\":{\"c\":4},\"a\":5}",
        ] {
            let value: Value = serde_json::from_str(text).unwrap();
            let json: Json<'_> = serde_json::from_str(text).unwrap();
            let written = serde_json::to_string(&json).unwrap();
            assert_eq!(written, value.to_string(), "{text}");
            assert_eq!(json, Json::from(&value), "{text}");
            assert_eq!(json.clone().into_owned(), json, "{text}");
        }
    }

    #[test]
    fn what_is_no_value_is_refused_with_the_same_words() {
        for text in ["", "[1,]", "{\"a\"}", "\"\\ud800\"", "1e999", "{1:2}", "nul", "[1] 2", "\"\u{1}\""] {
            let refused = serde_json::from_str::<Value>(text).unwrap_err().to_string();
            assert_eq!(serde_json::from_str::<Json<'_>>(text).unwrap_err().to_string(), refused, "{text}");
        }
    }

    #[test]
    fn strings_without_escapes_are_not_copied() {
        let text = "{\"name\":[\"value\"]}";
        let Json::Object(members) = serde_json::from_str(text).unwrap() else { panic!("an object") };
        let (name, Json::Array(elements)) = &members[0] else { panic!("an array") };
        assert!(matches!(name, Cow::Borrowed("name")));
        assert!(matches!(elements[0], Json::String(Cow::Borrowed("value"))));
    }
}
