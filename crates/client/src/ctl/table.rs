//! Tables as text, in the formats `table`, `list`, `html`, `csv` and `json`, with cells as `string`, `bare`
//! or `json`.
//!
//! Source: ovs-vsctl(8), "Table Formatting Options". Widths count bytes, as the stock tools' do.

use std::fmt::Write;

use serde_json::{Value, json};

use super::json::to_text;
use ovsdb::text::{Bare, Printed};
use ovsdb::{ColumnType, Datum, UUID_LEN, Uuid};

/// How the whole is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Aligned columns.
    Table,
    /// A line a column, an empty line between rows.
    List,
    /// `<table>`.
    Html,
    /// RFC 4180.
    Csv,
    /// One object a table.
    Json,
}

/// How a cell that holds a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellFormat {
    /// As `list` prints it.
    String,
    /// Without brackets and quotes.
    Bare,
    /// As in the protocol.
    Json,
}

/// All options of table formatting.
#[derive(Clone, Debug)]
pub struct Style {
    /// `-f`, `--format`.
    pub format: Format,
    /// `-d`, `--data`.
    pub cell: CellFormat,
    /// Not `--no-headings`.
    pub headings: bool,
    /// `--pretty`: JSON over several lines.
    pub pretty: bool,
    /// `--max-column-width`; 0 is without limit.
    pub max_column_width: usize,
}

impl Style {
    /// Cells as strings, with headings.
    pub fn new(format: Format) -> Style {
        Style { format, cell: CellFormat::String, headings: true, pretty: false, max_column_width: 0 }
    }

    /// Sets the format by its name.
    pub fn set_format(&mut self, name: &str) -> Result<(), String> {
        self.format = match name {
            "table" => Format::Table,
            "list" => Format::List,
            "html" => Format::Html,
            "csv" => Format::Csv,
            "json" => Format::Json,
            _ => return Err(format!("unknown output format \"{name}\"")),
        };
        Ok(())
    }

    /// Sets the cells' format by its name.
    pub fn set_cell(&mut self, name: &str) -> Result<(), String> {
        self.cell = match name {
            "string" => CellFormat::String,
            "bare" => CellFormat::Bare,
            "json" => CellFormat::Json,
            _ => return Err(format!("unknown data format \"{name}\"")),
        };
        Ok(())
    }

    /// `--bare`.
    pub fn set_bare(&mut self) {
        self.format = Format::List;
        self.cell = CellFormat::Bare;
        self.headings = false;
    }
}

/// What is in a cell.
#[derive(Clone, Debug)]
pub enum Cell {
    /// Nothing: JSON's null, no text.
    Nothing,
    /// Text, the same in every format.
    Text(String),
    /// JSON, which is text in formats other than `json`.
    Json(Value),
    /// A column's value.
    Datum(Datum, ColumnType),
}

impl Cell {
    fn json(&self) -> Value {
        match self {
            Cell::Nothing => Value::Null,
            Cell::Text(text) => Value::from(text.as_str()),
            Cell::Json(json) => json.clone(),
            Cell::Datum(datum, of) => datum.to_json(of),
        }
    }

    fn text(&self, style: &Style) -> String {
        match (self, style.cell) {
            (Cell::Nothing, _) => String::new(),
            (Cell::Text(text), _) => text.clone(),
            (Cell::Json(json), _) => to_text(json, false),
            (Cell::Datum(datum, of), CellFormat::String) => Printed(datum, of).to_string(),
            (Cell::Datum(datum, _), CellFormat::Bare) => Bare(datum).to_string(),
            (Cell::Datum(datum, of), CellFormat::Json) => to_text(&datum.to_json(of), false),
        }
    }
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Above it.
    pub caption: Option<String>,
    /// When it was made, as text.
    pub timestamp: Option<String>,
    /// One a column.
    pub headings: Vec<String>,
    /// Each as long as the headings.
    pub rows: Vec<Vec<Cell>>,
}

/// Prints tables one after the other, with an empty line between them.
#[derive(Debug, Default)]
pub struct Printer {
    printed: usize,
}

impl Printer {
    /// None printed yet.
    pub fn new() -> Printer {
        Printer::default()
    }

    /// The text of `table`, and of the line that separates it from the one before.
    pub fn print(&mut self, table: &Table, style: &Style) -> String {
        let mut out = String::new();
        if self.printed > 0 && !matches!(style.format, Format::Json | Format::Html) {
            out.push('\n');
        }
        self.printed += 1;
        if !matches!(style.format, Format::Json | Format::Html) {
            if let Some(timestamp) = &table.timestamp {
                let _ = writeln!(out, "{timestamp}");
            }
            if let Some(caption) = &table.caption {
                let _ = writeln!(out, "{caption}");
            }
        }
        match style.format {
            Format::Table => aligned(&mut out, table, style),
            Format::List => list(&mut out, table, style),
            Format::Html => html(&mut out, table, style),
            Format::Csv => csv(&mut out, table, style),
            Format::Json => {
                let mut json = json!({
                    "headings": table.headings,
                    "data": table.rows.iter().map(|row| row.iter().map(Cell::json).collect()).collect::<Vec<Value>>(),
                });
                if let Some(caption) = &table.caption {
                    json["caption"] = Value::from(caption.as_str());
                }
                if let Some(timestamp) = &table.timestamp {
                    json["time"] = Value::from(timestamp.as_str());
                }
                let _ = writeln!(out, "{}", to_text(&json, style.pretty));
            }
        }
        out
    }
}

fn aligned(out: &mut String, table: &Table, style: &Style) {
    let rows: Vec<Vec<String>> =
        table.rows.iter().map(|row| row.iter().map(|cell| cell.text(style)).collect()).collect();
    let widths: Vec<usize> = table
        .headings
        .iter()
        .enumerate()
        .map(|(column, heading)| {
            let widest = rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
            let widest = match style.max_column_width {
                0 => widest,
                max => widest.min(max),
            };
            if style.headings { widest.max(heading.len()) } else { widest }
        })
        .collect();
    let line = |out: &mut String, cells: &[String]| {
        let mut line = String::new();
        for (index, (cell, &width)) in cells.iter().zip(&widths).enumerate() {
            if index > 0 {
                line.push(' ');
            }
            let cell = cut(cell, width);
            line.push_str(cell);
            line.push_str(&" ".repeat(width - cell.len()));
        }
        let _ = writeln!(out, "{}", line.trim_end_matches(' '));
    };
    if style.headings {
        line(out, &table.headings);
        let dashes: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        line(out, &dashes);
    }
    for row in &rows {
        line(out, row);
    }
}

/// The start of `text` that has no more than `bytes` bytes, whole characters.
fn cut(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn list(out: &mut String, table: &Table, style: &Style) {
    for (index, row) in table.rows.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        for (cell, heading) in row.iter().zip(&table.headings) {
            if style.headings {
                let _ = write!(out, "{heading:<20}: ");
            }
            let _ = writeln!(out, "{}", cell.text(style));
        }
    }
}

fn csv(out: &mut String, table: &Table, style: &Style) {
    let field = |text: &str| match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    };
    if style.headings {
        let headings: Vec<String> = table.headings.iter().map(|heading| field(heading)).collect();
        let _ = writeln!(out, "{}", headings.join(","));
    }
    for row in &table.rows {
        let fields: Vec<String> = row.iter().map(|cell| field(&cell.text(style))).collect();
        let _ = writeln!(out, "{}", fields.join(","));
    }
}

fn html(out: &mut String, table: &Table, style: &Style) {
    out.push_str("<table border=1>\n");
    if let Some(caption) = &table.caption {
        let _ = writeln!(out, "    <caption>{}</caption>", escape(caption));
    }
    let mut row = |element: &str, cells: &[String]| {
        out.push_str("  <tr>\n");
        for cell in cells {
            let _ = writeln!(out, "    <{element}>{cell}</{element}>");
        }
        out.push_str("  </tr>\n");
    };
    if style.headings {
        row("th", &table.headings.iter().map(|heading| escape(heading)).collect::<Vec<_>>());
    }
    for cells in &table.rows {
        let cells: Vec<String> = cells
            .iter()
            .zip(&table.headings)
            .map(|(cell, heading)| html_cell(&cell.text(style), heading))
            .collect();
        row("td", &cells);
    }
    out.push_str("</table>\n");
}

/// UUIDs are short links to the rows that they name.
fn html_cell(text: &str, heading: &str) -> String {
    if heading == "_uuid" {
        return format!("<a name=\"{}\">{}</a>", escape(text), escape(cut(text, 8)));
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        match rest.get(..UUID_LEN).filter(|start| Uuid::parse(start).is_some()) {
            Some(uuid) => {
                let _ = write!(out, "<a href=\"#{uuid}\">{}</a>", &uuid[..8]);
                rest = &rest[UUID_LEN..];
            }
            None => {
                escape_char(&mut out, c);
                rest = &rest[c.len_utf8()..];
            }
        }
    }
    out
}

fn escape(text: &str) -> String {
    let mut out = String::new();
    text.chars().for_each(|c| escape_char(&mut out, c));
    out
}

fn escape_char(out: &mut String, c: char) {
    match c {
        '&' => out.push_str("&amp;"),
        '<' => out.push_str("&lt;"),
        '>' => out.push_str("&gt;"),
        '"' => out.push_str("&quot;"),
        c => out.push(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ovsdb::AtomType;

    fn table() -> Table {
        let text = ColumnType { min: 0, ..ColumnType::scalar(AtomType::String) };
        let cell = |value: Option<&str>| Cell::Datum(Datum::optional(value), text.clone());
        Table {
            headings: vec!["name".into(), "long_heading".into()],
            rows: vec![
                vec![cell(Some("a,b")), cell(None)],
                vec![cell(Some("longer than it")), cell(Some("x"))],
            ],
            ..Table::default()
        }
    }

    fn print(format: Format, change: impl Fn(&mut Style)) -> String {
        let mut style = Style::new(format);
        change(&mut style);
        Printer::new().print(&table(), &style)
    }

    #[test]
    fn each_format_has_its_text() {
        let aligned = "name             long_heading\n---------------- ------------\n\"a,b\"            []\n\"longer than it\" x\n";
        assert_eq!(print(Format::Table, |_| ()), aligned);
        let narrow = print(Format::Table, |style| {
            style.max_column_width = 5;
            style.headings = false;
        });
        assert_eq!(narrow, "\"a,b\" []\n\"long x\n");
        let bare = "a,b\n\n\nlonger than it\nx\n";
        assert_eq!(print(Format::Table, Style::set_bare), bare);
        assert_eq!(print(Format::Csv, |_| ()).lines().nth(1), Some("\"\"\"a,b\"\"\",[]"));
        assert!(print(Format::Json, |_| ()).starts_with("{\"data\":[[\"a,b\",[\"set\",[]]],"));
        assert!(print(Format::Html, |_| ()).contains("    <td>&quot;a,b&quot;</td>\n"));
        assert_eq!(
            html_cell("[f81d4fae-7dec-11d0-a765-00a0c91e6bf6]", "x"),
            "[<a href=\"#f81d4fae-7dec-11d0-a765-00a0c91e6bf6\">f81d4fae</a>]"
        );
    }

    #[test]
    fn tables_are_separated_by_a_line() {
        let mut printer = Printer::new();
        let style = Style::new(Format::List);
        let first = printer.print(&table(), &style);
        assert_eq!(printer.print(&table(), &style), format!("\n{first}"));
    }
}
