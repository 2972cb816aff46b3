//! The table of field cases in `docs/verification.md` is complete, and every test that it names
//! exists.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The cases there are, by number.
const CASES: [u32; 77] = [
    1, 2, 3, 4, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 18, 19, 21, 22, 23, 24, 27, 29, 30, 31, 32, 34,
    35, 36, 39, 40, 41, 42, 43, 45, 46, 48, 49, 50, 52, 53, 54, 56, 57, 58, 60, 62, 63, 64, 65, 67,
    68, 69, 71, 72, 73, 75, 76, 77, 78, 79, 81, 83, 84, 85, 86, 88, 89, 90, 91, 92, 95, 97, 98, 99,
    100, 101, 103,
];

struct Row {
    case: u32,
    state: String,
    text: String,
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rows(document: &str) -> Vec<Row> {
    document
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| F")?.splitn(3, " | ");
            Some(Row {
                case: cells.next()?.parse().ok()?,
                state: cells.next()?.to_owned(),
                text: cells.next()?.trim_end_matches(" |").to_owned(),
            })
        })
        .collect()
}

/// `file::test` names in backticks.
fn named(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter_map(|quoted| quoted.split_once("::"))
        .filter(|(file, _)| file.starts_with(char::is_lowercase))
}

fn has_test(root: &Path, file: &str, test: &str) -> bool {
    ["tests", "loom-tests", "src"].iter().any(|folder| {
        let text = fs::read_to_string(root.join(folder).join(format!("{file}.rs")));
        text.is_ok_and(|text| text.contains(&format!("fn {test}(")))
    })
}

/// What is wrong with a table, if anything.
fn faults(document: &str, root: &Path) -> Vec<String> {
    let rows = rows(document);
    let told: Vec<u32> = rows.iter().map(|row| row.case).collect();
    let mut faults = Vec::new();
    if told != CASES {
        let (told, cases): (BTreeSet<_>, BTreeSet<_>) =
            (told.into_iter().collect(), CASES.into_iter().collect());
        faults.push(format!(
            "cases out of order, or these differ: {:?}",
            &told ^ &cases
        ));
    }
    for row in &rows {
        let tests: Vec<_> = named(&row.text).collect();
        for (file, test) in &tests {
            if !has_test(root, file, test) {
                faults.push(format!("F{}: there is no {file}::{test}", row.case));
            }
        }
        let sound = match row.state.as_str() {
            "covered" => {
                !tests.is_empty()
                    || row.text.contains("compile_fail")
                    || row.text.starts_with("as F")
            }
            "in part" => !tests.is_empty() && row.text.contains("issue "),
            "open" => row.text.contains("issue "),
            "not here" => !row.text.is_empty(),
            _ => false,
        };
        if !sound {
            faults.push(format!(
                "F{}: {} without what that takes",
                row.case, row.state
            ));
        }
    }
    faults
}

#[test]
fn every_field_case_is_told_and_its_tests_exist() {
    let document = fs::read_to_string(root().join("docs/verification.md")).unwrap();
    assert_eq!(faults(&document, &root()), Vec::<String>::new());
}

#[test]
fn a_missing_case_or_test_is_found() {
    let document = fs::read_to_string(root().join("docs/verification.md")).unwrap();
    let planted = |line: &str| {
        let line_of = |old: &str| {
            if old.starts_with("| F91 |") {
                line.to_owned()
            } else {
                old.to_owned()
            }
        };
        let document: Vec<_> = document.lines().map(line_of).collect();
        faults(&document.join("\n"), &root()).join("\n")
    };
    assert!(planted("").contains("{91}"));
    assert!(planted("| F93 | open | issue 3 |").contains("{91, 93}"));
    assert_eq!(planted("| F91 | open | issue 3 |"), "");
    assert!(planted("| F91 | open | later |").contains("F91: open without"));
    assert!(planted("| F91 | covered | surely |").contains("F91: covered without"));
    assert!(
        planted("| F91 | in part | `pool::gone`; issue 3 |")
            .contains("F91: there is no pool::gone")
    );
    assert!(planted("| F91 | fine | issue 3 |").contains("F91: fine without"));
}
