//! The table of actions, and what its rows promise.

use flow::action::SubField;
use flow::{Action, Mf};
use openflow::text::{PortNames, actions_text};
use openflow::{Codec, Version};

#[test]
fn a_load_is_a_masked_set_field_in_openflow_15() {
    let target = SubField { field: Mf::Reg(1), offset: 4, count: 16 };
    let load = Action::Load { target, value: 5, as_set_field: false };
    for version in Version::ALL {
        let codec = Codec::new(version);
        let expected = match version {
            Version::V15 => Action::SetField { field: Mf::Reg(1), value: 0x50, mask: 0xf_fff0 },
            _ => load.clone(),
        };
        assert_eq!(
            codec.decode_actions(&codec.encode_actions(std::slice::from_ref(&load))),
            Ok(vec![expected])
        );
    }
}

#[test]
fn dec_ttl_that_tells_nobody_is_told_from_one_that_tells_controller_0() {
    let codec = Codec::new(Version::V15);
    let mut bytes = vec![0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 21];
    bytes.resize(16, 0);
    let nobody = Action::DecTtl(Some(Vec::new()));
    assert_eq!(codec.decode_actions(&bytes), Ok(vec![nobody.clone()]));
    assert_eq!(actions_text(&[nobody], Version::V15, PortNames::none()), "dec_ttl()");
}

#[test]
fn the_document_has_the_tables_of_messages_statistics_fields_actions_and_errors() {
    let path = testkit::root().join("docs/openflow.md");
    let mut document = std::fs::read_to_string(&path).unwrap();
    let tables = [
        ("messages", openflow::codec::messages_table()),
        ("statistics", openflow::codec::statistics_table()),
        ("fields", openflow::codec::fields_table()),
        ("actions", openflow::actions_table()),
        ("errors", openflow::codec::errors_table()),
    ];
    for (name, table) in tables {
        let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
        let from = document.find(&begin).expect("a marker where the table begins") + begin.len();
        let to = document.find(&end).expect("a marker where the table ends");
        let table = format!("\n{table}\n");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            document.replace_range(from..to, &table);
            continue;
        }
        assert_eq!(document[from..to], table, "run this test with UPDATE_DOCS=1 to renew docs/openflow.md");
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, document).unwrap();
    }
}
