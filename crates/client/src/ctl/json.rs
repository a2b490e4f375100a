//! JSON in the stock tools' format: members sorted, reals with up to 15 digits, and if pretty, two spaces per
//! level with closing brackets at the end of the last line.

use std::fmt::Write;

use serde_json::Value;

/// The text of `json`.
pub fn to_text(json: &Value, pretty: bool) -> String {
    let mut out = String::new();
    write_value(&mut out, json, pretty.then_some(0));
    out
}

/// `indent` is the depth if the output is pretty.
fn write_value(out: &mut String, json: &Value, indent: Option<usize>) {
    match json {
        Value::Number(number) => match number.as_f64() {
            Some(value) if number.is_f64() => out.push_str(&ovsdb::text::real(value)),
            _ => {
                let _ = write!(out, "{number}");
            }
        },
        Value::Array(elements) => {
            out.push('[');
            for (index, element) in elements.iter().enumerate() {
                next(out, index, indent);
                write_value(out, element, indent.map(|depth| depth + 1));
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|a, b| a.0.cmp(b.0));
            out.push('{');
            for (index, (name, value)) in members.into_iter().enumerate() {
                next(out, index, indent);
                let _ = write!(out, "{}:", Value::from(name.as_str()));
                if indent.is_some() {
                    out.push(' ');
                }
                write_value(out, value, indent.map(|depth| depth + 1));
            }
            out.push('}');
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

fn next(out: &mut String, index: usize, indent: Option<usize>) {
    if index > 0 {
        out.push(',');
    }
    if let Some(depth) = indent {
        let _ = write!(out, "\n{:1$}", "", (depth + 1) * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pretty_text_closes_on_the_last_line() {
        let json: Value = serde_json::from_str(r#"{"b":[1,{"c":0.5}],"a":[],"d":{}}"#).unwrap();
        assert_eq!(to_text(&json, false), r#"{"a":[],"b":[1,{"c":0.5}],"d":{}}"#);
        let pretty = "{\n  \"a\": [],\n  \"b\": [\n    1,\n    {\n      \"c\": 0.5}],\n  \"d\": {}}";
        assert_eq!(to_text(&json, true), pretty);
    }
}
