//! Compares `docs/protocol.md` with the kernel: the transition table, the synchronisation edges,
//! and the `// Ordering:` comment that every atomic operation must have. The comparing functions
//! work on strings, so that the tests at the end can show each of them to fail on planted faults.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use ndpool::kernel::state::{Row, TABLE};

/// Files outside the kernel and its facades that may name an atomic, and why.
const MAY_NAME_ATOMICS: [(&str, &str); 3] = [
    ("os.rs", "caches the answer of the system"),
    ("report.rs", "the report hook, reclaimed by epochs"),
    (
        "watch/table.rs",
        "what checks remember of blocks, reclaimed by epochs",
    ),
];

/// Folders and files that are the kernel and its facades.
const KERNEL: [&str; 4] = ["kernel/", "loom_model/", "shuttle_model/", "sync.rs"];

const ORDERINGS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];

// ---------------------------------------------------------------------------------------------
// The document.

/// Cells of the table rows in `text` whose first cell begins with `prefix` and a digit.
fn rows(text: &str, prefix: char) -> Vec<Vec<String>> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix('|')?.strip_suffix('|'))
        .map(|line| {
            line.split('|')
                .map(|cell| cell.trim().to_owned())
                .collect::<Vec<_>>()
        })
        .filter(|cells| {
            let id = cells[0].strip_prefix(prefix);
            id.is_some_and(|id| !id.is_empty() && id.chars().all(|c| c.is_ascii_digit()))
        })
        .collect()
}

/// An edge of the document.
#[derive(Debug)]
struct Edge {
    store_load: bool,
    writers: BTreeSet<String>,
    readers: BTreeSet<String>,
}

fn edges(document: &str) -> Result<BTreeMap<String, Edge>, String> {
    let mut edges = BTreeMap::new();
    for cells in rows(document, 'E') {
        let [id, kind, writer, reader, _visible] = cells.as_slice() else {
            return Err(format!("an edge has five cells: {cells:?}"));
        };
        let edge = Edge {
            store_load: match kind.as_str() {
                "release-acquire" => false,
                "store-load" => true,
                _ => return Err(format!("{id}: unknown kind `{kind}`")),
            },
            writers: quoted(writer),
            readers: quoted(reader),
        };
        if edge.writers.is_empty() || edge.readers.is_empty() {
            return Err(format!("{id} has one end only"));
        }
        if edges.insert(id.clone(), edge).is_some() {
            return Err(format!("{id} is listed twice"));
        }
    }
    Ok(edges)
}

/// What stands in backquotes.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// Compares the document's transition table with the code's.
fn check_table(document: &str, table: &[Row]) -> Result<(), String> {
    let told = rows(document, 'T');
    if told.len() != table.len() {
        return Err(format!(
            "{} rows told, {} in the code",
            told.len(),
            table.len()
        ));
    }
    for (told, row) in told.iter().zip(table) {
        let code = [row.id, row.from, row.operation, row.to, row.how];
        if told.as_slice() != code {
            return Err(format!("{}: told {told:?}, in the code {code:?}", row.id));
        }
    }
    Ok(())
}

// ---------------------------------------------------------------------------------------------
// The code.

/// One `// Ordering:` comment and the statement under it.
#[derive(Debug)]
struct Comment {
    /// `file::function`.
    place: String,
    line: usize,
    /// Orderings before the dash.
    names: BTreeSet<String>,
    /// Each edge with the partners that are named for it.
    edges: BTreeMap<String, BTreeSet<String>>,
}

/// Source without its unit tests.
fn product(source: &str) -> &str {
    source.split("#[cfg(test)]\nmod ").next().unwrap()
}

/// The code of a line, without a comment at its end.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap().trim()
}

/// Memory orderings that a piece of code passes.
fn passed(code: &str) -> Vec<String> {
    code.split("Ordering::")
        .skip(1)
        .filter_map(|rest| {
            ORDERINGS
                .into_iter()
                .find(|ordering| word(rest) == *ordering)
        })
        .map(str::to_owned)
        .collect()
}

/// The identifier at the start of `text`.
fn word(text: &str) -> &str {
    let end = text
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    &text[..end]
}

/// Edges `E<n>` named in the text of a comment, each with the partners between "with" and the
/// colon or semicolon behind it. Edges joined by "and" share their partners.
fn named_edges(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut named = BTreeMap::new();
    for clause in text.split([':', ';']) {
        let ids: Vec<_> = clause
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| {
                word.strip_prefix('E')
                    .is_some_and(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_digit()))
            })
            .collect();
        let partners = clause
            .split_once("with ")
            .map(|(_, who)| quoted(who))
            .unwrap_or_default();
        for id in ids {
            named
                .entry(id.to_owned())
                .or_insert_with(BTreeSet::new)
                .extend(partners.clone());
        }
    }
    named
}

/// Reads the comments of a kernel file and checks each against the statement under it.
fn comments(file: &str, source: &str) -> Result<Vec<Comment>, String> {
    let lines: Vec<_> = product(source).lines().collect();
    let mut found = Vec::new();
    let mut explained = BTreeSet::new();
    let mut function = "";
    let mut at = 0;
    while at < lines.len() {
        if let Some((_, rest)) = code(lines[at]).split_once("fn ") {
            function = word(rest);
        }
        let Some(first) = lines[at].trim().strip_prefix("// Ordering:") else {
            at += 1;
            continue;
        };
        let here = format!("{file}:{}", at + 1);
        let mut text = first.trim().to_owned();
        let line = at + 1;
        at += 1;
        while let Some(more) = lines
            .get(at)
            .and_then(|line| line.trim().strip_prefix("// "))
        {
            text = format!("{text} {more}");
            at += 1;
        }
        let Some((head, why)) = text.split_once(" - ") else {
            return Err(format!("{here}: no reason after a dash"));
        };
        let names: BTreeSet<String> = head
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| ORDERINGS.contains(word))
            .map(str::to_owned)
            .collect();
        let mut statement = String::new();
        for (next, line) in lines.iter().enumerate().skip(at) {
            let code = code(line);
            statement.push_str(code);
            explained.insert(next);
            if code.ends_with([';', '{', '}']) {
                break;
            }
        }
        check_statement(&names, &statement).map_err(|fault| format!("{here}: {fault}"))?;
        found.push(Comment {
            place: format!("{}::{function}", file.trim_end_matches(".rs")),
            line,
            names,
            edges: named_edges(why),
        });
    }
    for (at, line) in lines.iter().enumerate() {
        let here = format!("{file}:{}", at + 1);
        let code = code(line);
        if !passed(code).is_empty() && !explained.contains(&at) {
            return Err(format!("{here}: an ordering without its comment"));
        }
        if code.contains("Ordering::SeqCst") && !code.contains("fence(") {
            return Err(format!("{here}: a SeqCst access"));
        }
        if code.contains("sync::atomic") {
            return Err(format!(
                "{here}: an atomic that does not come by `super::sync`"
            ));
        }
    }
    Ok(found)
}

/// Whether a comment names what its statement passes. A failure ordering of Relaxed goes without
/// saying.
fn check_statement(names: &BTreeSet<String>, statement: &str) -> Result<(), String> {
    let passed = passed(statement);
    if passed.is_empty() {
        return Err("a comment without an atomic under it".to_owned());
    }
    let exchanges = statement.contains("compare_exchange") || statement.contains("try_update");
    for (at, ordering) in passed.iter().enumerate() {
        let goes_without_saying = ordering == "Relaxed" && exchanges && at > 0;
        if !names.contains(ordering) && !goes_without_saying {
            return Err(format!("passes {ordering}, explains {names:?}"));
        }
    }
    match names.iter().find(|name| !passed.contains(name)) {
        Some(name) => Err(format!("explains {name}, passes {passed:?}")),
        None => Ok(()),
    }
}

/// Compares the edges of the document with those that the comments name.
fn check_edges(document: &str, comments: &[Comment]) -> Result<(), String> {
    let edges = edges(document)?;
    for comment in comments {
        for (id, partners) in &comment.edges {
            let here = format!("{}, line {}: {id}", comment.place, comment.line);
            let Some(edge) = edges.get(id) else {
                return Err(format!("{here} is not in the document"));
            };
            let ends: BTreeSet<_> = edge.writers.union(&edge.readers).collect();
            if !ends.contains(&comment.place) {
                return Err(format!("{here} does not have this end in the document"));
            }
            for partner in partners {
                if !ends
                    .iter()
                    .any(|end| end.split("::").last() == Some(word(partner)))
                {
                    return Err(format!("{here} has no end in `{partner}`"));
                }
            }
        }
    }
    for (id, edge) in &edges {
        let sides = [
            ("writer", &edge.writers, ["Release", "AcqRel", "SeqCst"]),
            ("reader", &edge.readers, ["Acquire", "AcqRel", "SeqCst"]),
        ];
        for (side, ends, strong) in sides {
            for end in ends {
                let named = comments.iter().any(|comment| {
                    comment.place == *end
                        && comment.edges.contains_key(id)
                        && (edge.store_load
                            || strong.iter().any(|name| comment.names.contains(*name)))
                });
                if !named {
                    return Err(format!("{id}: no such {side} in the code as `{end}`"));
                }
            }
        }
    }
    for comment in comments {
        let (place, line) = (&comment.place, comment.line);
        let is_weak = comment.names.iter().all(|name| name == "Relaxed");
        if !is_weak && comment.edges.is_empty() {
            return Err(format!("{place}, line {line}: strong, but names no edge"));
        }
    }
    Ok(())
}

/// Whether a file that is none of the kernel's names an atomic. Returns the line.
fn names_atomic(source: &str) -> Option<usize> {
    let names = |line: &str| {
        let line = code(line);
        let typed = line.split("Atomic").skip(1).any(|rest| {
            ["U", "I", "Ptr", "Bool"]
                .iter()
                .any(|kind| rest.starts_with(kind))
        });
        typed || line.contains("sync::atomic") || !passed(line).is_empty()
    };
    product(source).lines().position(names).map(|at| at + 1)
}

// ---------------------------------------------------------------------------------------------
// The comparison.

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn document() -> String {
    fs::read_to_string(root().join("docs/protocol.md")).unwrap()
}

/// Every Rust file under `folder`, by its path from there.
fn sources(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path
                    .strip_prefix(folder)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned();
                found.push((name, fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn the_document_tells_the_transition_table() {
    check_table(&document(), &TABLE).unwrap();
}

#[test]
fn the_document_and_the_comments_name_the_same_edges() {
    let mut found = Vec::new();
    for (file, source) in sources(&root().join("src/kernel")) {
        found.extend(comments(&file, &source).unwrap());
    }
    assert!(!found.is_empty());
    check_edges(&document(), &found).unwrap();
}

#[test]
fn only_the_kernel_names_atomics() {
    for (file, source) in sources(&root().join("src")) {
        let may = KERNEL.iter().any(|kernel| file.starts_with(kernel))
            || MAY_NAME_ATOMICS.iter().any(|(name, _)| file == *name);
        if !may {
            assert_eq!(
                names_atomic(&source),
                None,
                "src/{file} names an atomic in that line"
            );
        }
    }
}

// ---------------------------------------------------------------------------------------------
// Planted faults.

const GOOD: &str = "
impl Word {
    fn give(&self) {
        // Ordering: Release - E1, with `take`: the payload.
        self.0.swap(1, Ordering::Release);
    }

    fn take(&self) -> bool {
        // Ordering: Acquire - E1, with `give`: the payload; it is
        // ours.
        self.0
            .compare_exchange(
                1,
                0,
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .is_ok()
    }
}
";

const TOLD: &str = "
| edge | kind | writer | reader | what |
|---|---|---|---|---|
| E1 | release-acquire | `word::give` | `word::take` | the payload |
";

/// What the checks say to a document and a source file `word.rs`.
fn verdict(document: &str, source: &str) -> Result<(), String> {
    check_edges(document, &comments("word.rs", source)?)
}

/// The verdict on the good pair with one text replaced in each.
fn planted(in_document: [&str; 2], in_source: [&str; 2]) -> String {
    assert!(TOLD.contains(in_document[0]) && GOOD.contains(in_source[0]));
    let document = TOLD.replacen(in_document[0], in_document[1], 1);
    verdict(&document, &GOOD.replacen(in_source[0], in_source[1], 1)).unwrap_err()
}

const SAME: [&str; 2] = ["", ""];

#[test]
fn a_good_pair_passes() {
    verdict(TOLD, GOOD).unwrap();
}

#[test]
fn a_missing_comment_is_found() {
    let fault = planted(
        SAME,
        [
            "        // Ordering: Release - E1, with `take`: the payload.\n",
            "",
        ],
    );
    assert!(fault.contains("without its comment"), "{fault}");
}

#[test]
fn a_comment_covers_one_statement_only() {
    let twice = "self.0.swap(1, Ordering::Release);\nself.0.swap(2, Ordering::Release);";
    let fault = planted(SAME, ["self.0.swap(1, Ordering::Release);", twice]);
    assert!(fault.contains("without its comment"), "{fault}");
}

#[test]
fn a_comment_that_says_another_ordering_is_found() {
    let fault = planted(
        SAME,
        ["swap(1, Ordering::Release)", "swap(1, Ordering::Relaxed)"],
    );
    assert!(fault.contains("passes Relaxed"), "{fault}");
    let fault = planted(
        SAME,
        [
            "Ordering: Acquire -",
            "Ordering: Acquire, on failure AcqRel -",
        ],
    );
    assert!(fault.contains("explains AcqRel"), "{fault}");
    let fault = planted(SAME, ["Ordering::Relaxed,", "Ordering::SeqCst,"]);
    assert!(fault.contains("passes SeqCst"), "{fault}");
}

#[test]
fn a_comment_without_reason_or_atomic_is_found() {
    let fault = planted(SAME, [" - E1, with `take`: the payload.", "."]);
    assert!(fault.contains("no reason"), "{fault}");
    let fault = planted(
        SAME,
        ["self.0.swap(1, Ordering::Release);", "self.0.clear();"],
    );
    assert!(fault.contains("without an atomic"), "{fault}");
}

#[test]
fn a_strong_ordering_without_its_edge_is_found() {
    let more = "// Ordering: AcqRel - to be sure.\nself.0.swap(2, Ordering::AcqRel);\n    }\n\n    fn take";
    let fault = planted(SAME, ["}\n\n    fn take", more]);
    assert!(fault.contains("names no edge"), "{fault}");
}

#[test]
fn an_edge_that_is_not_told_is_found() {
    let fault = planted(SAME, ["E1, with `take`", "E2, with `take`"]);
    assert!(fault.contains("E2 is not in the document"), "{fault}");
}

#[test]
fn an_edge_that_nobody_makes_is_found() {
    let more =
        "`word::take` | the payload |\n| E2 | store-load | `word::give` | `word::take` | - |";
    let fault = planted(["`word::take` | the payload |", more], SAME);
    assert!(fault.contains("E2: no such writer"), "{fault}");
}

#[test]
fn an_edge_with_one_end_is_found() {
    let fault = planted(["`word::take`", "-"], SAME);
    assert!(fault.contains("one end"), "{fault}");
    let fault = planted(SAME, ["E1, with `give`: the payload; it is", "it is"]);
    assert!(fault.contains("E1: no such reader"), "{fault}");
}

#[test]
fn an_end_at_another_place_or_partner_is_found() {
    let fault = planted(SAME, ["fn take", "fn grab"]);
    assert!(fault.contains("word::grab"), "{fault}");
    let fault = planted(SAME, ["with `give`", "with `gives`"]);
    assert!(fault.contains("no end in `gives`"), "{fault}");
}

#[test]
fn an_end_that_is_too_weak_is_found() {
    let fault = planted(
        SAME,
        [
            "Ordering: Release - E1, with `take`: the payload.\n        self.0.swap(1, Ordering::Release)",
            "Ordering: Relaxed - E1, with `take`: the payload.\n        self.0.swap(1, Ordering::Relaxed)",
        ],
    );
    assert!(fault.contains("E1: no such writer"), "{fault}");
}

#[test]
fn a_seqcst_access_is_found_and_a_fence_is_not() {
    let access = "// Ordering: SeqCst - strongest.\nself.0.load(Ordering::SeqCst);";
    assert!(
        comments("word.rs", access)
            .unwrap_err()
            .contains("SeqCst access")
    );
    let fence = "// Ordering: SeqCst - E1, with `take`: store-load.\nfence(Ordering::SeqCst);";
    comments("word.rs", fence).unwrap();
}

#[test]
fn an_atomic_past_the_facade_is_found() {
    let fault = comments("word.rs", "use core::sync::atomic::AtomicU32;").unwrap_err();
    assert!(fault.contains("super::sync"), "{fault}");
}

#[test]
fn an_atomic_outside_the_kernel_is_found() {
    assert_eq!(
        names_atomic("fn f() {}\nstatic N: AtomicU64 = zero();"),
        Some(2)
    );
    assert_eq!(names_atomic("use std::sync::atomic::*;"), Some(1));
    assert_eq!(names_atomic("n.load(Ordering::Relaxed);"), Some(1));
    assert_eq!(
        names_atomic("// AtomicU64 in a comment\na.cmp(&b) == Ordering::Less"),
        None
    );
    assert_eq!(names_atomic("atomically(); struct Atomicity;"), None);
}

#[test]
fn a_table_that_differs_is_found() {
    let document = document();
    let missing: String = document
        .lines()
        .filter(|line| !line.starts_with("| T7 "))
        .collect::<Vec<_>>()
        .join("\n");
    assert!(
        check_table(&missing, &TABLE)
            .unwrap_err()
            .contains("9 rows")
    );
    let changed = document.replacen(
        "| 1, g | take back unique |",
        "| n, g | take back unique |",
        1,
    );
    assert_ne!(changed, document);
    assert!(check_table(&changed, &TABLE).unwrap_err().contains("T7"));
}
