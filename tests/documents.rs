//! The documents say what the code says. `NDPOOL_BLESS=1 cargo test --test documents` writes the
//! class table anew.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use ndpool::class;
use ndpool::source::{Os, Source};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &str) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Bytes as the documents write them.
fn bytes(n: usize) -> String {
    const UNITS: [(usize, &str); 4] = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (shift, unit) in UNITS {
        // Quarters and eighths of a unit are written as such.
        if n >> shift > 0 && (n * 8).is_multiple_of(1 << shift) {
            return format!("{} {unit}", n as f64 / (1u64 << shift) as f64);
        }
    }
    format!("{n} B")
}

/// The value of an integer constant as the source or a document writes it.
fn number(text: &str) -> Option<u64> {
    let text = text.trim().replace(['_', ','], "");
    if let Some((value, shift)) = text.split_once("<<") {
        return Some(number(value)? << number(shift)?);
    }
    for (unit, shift) in [("KiB", 10), ("MiB", 20), ("GiB", 30)] {
        if let Some(value) = text.strip_suffix(unit) {
            return Some(number(value)? << shift);
        }
    }
    text.parse().ok()
}

/// Every constant of the shipped code, the models' small values left out.
fn constants() -> BTreeMap<String, u64> {
    let source = text("src/constants.rs");
    let start = source.find("pub mod model").expect("the models' values");
    let end = source.find("pub mod pool").expect("the pool's values");
    let shipped = format!("{}{}", &source[..start], &source[end..]);
    let mut found = BTreeMap::new();
    for line in shipped.split("pub const ").skip(1) {
        let (head, rest) = line.split_once(" = ").expect("a constant has a value");
        let name = head.split(':').next().expect("a name").to_owned();
        let value = rest.split(';').next().expect("an end");
        let value = match value.strip_prefix("if cfg!(target_arch = \"x86_64\") {") {
            Some(branch) => branch.split('}').next().expect("a branch"),
            None => value,
        };
        if let Some(value) = number(value) {
            found.insert(name, value);
        }
    }
    found
}

/// Cells of the table rows after the line that begins with `header`.
fn table(document: &str, header: &str) -> Vec<Vec<String>> {
    let start = document
        .find(header)
        .unwrap_or_else(|| panic!("no table {header}"));
    document[start..]
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let cells = line.trim_matches('|').split('|');
            cells.map(|cell| cell.trim().to_owned()).collect()
        })
        .collect()
}

#[test]
fn constants_in_the_design_are_the_codes() {
    let constants = constants();
    let design = text("docs/design.md");
    let rows = table(&design, "| constant | value |");
    assert!(rows.len() >= 12, "{rows:?}");
    for row in rows {
        let name = row[0].trim_matches('`');
        let value = constants.get(name);
        assert_eq!(value.copied(), number(&row[1]), "{name} is {}", row[1]);
    }
}

#[test]
fn numbers_of_the_promise_in_the_readme_are_the_codes() {
    let constants = constants();
    let readme = text("README.md");
    let slack = format!("slack = {:.2},", constants["SLACK_1024"] as f64 / 1024.0);
    let budget = format!("C = {},", bytes(constants["CACHE_BUDGET"] as usize));
    let floor = format!("floor = {};", bytes(constants["FLOOR"] as usize));
    let window = constants["WINDOW"] as usize;
    let window = format!("{},{:03} births", window / 1000, window % 1000);
    let reuse = format!(
        "{} times the size",
        1.0 + constants["REUSE_CLASSES"] as f64 / 4.0
    );
    for sentence in [slack, budget, floor, window, reuse] {
        assert!(readme.contains(&sentence), "README.md lacks `{sentence}`");
    }
}

/// The class table: the four classes of each doubling that ends at a power of two.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn classes() -> String {
    let constants = constants();
    let rounds_of = |footprint: usize| {
        let rounds = constants["MAGAZINE_BYTES"] as usize / footprint;
        let rounds = rounds.min(constants["MAGAZINE_ROUNDS"] as usize);
        if rounds < 2 || 3 * footprint > constants["CACHE_BUDGET"] as usize {
            0
        } else {
            rounds
        }
    };
    let mut rows = String::from(
        "| classes | capacity | alignment | footprint | worst | magazine |\n|---|---|---|---|---|---|\n",
    );
    let last = class::of(constants["MAX_CLASS"] as usize);
    for end in (0..=last).step_by(class::PER_DOUBLING) {
        let begin = (end + 1).saturating_sub(class::PER_DOUBLING);
        let capacities: Vec<usize> = (begin..=end).map(class::capacity).collect();
        let align = |capacity: usize| match capacity {
            0..4096 => 128,
            4096..0x20_0000 => 4096,
            _ => 0x20_0000,
        };
        let footprint = |capacity: usize| {
            let layout = Layout::from_size_align(capacity, align(capacity)).expect("a layout");
            Os::new().footprint(layout)
        };
        let worst = (begin.max(1)..=end)
            .map(|class| {
                footprint(class::capacity(class)) as f64 / (class::capacity(class - 1) + 1) as f64
            })
            .fold(0.0, f64::max);
        let listed = |of: &dyn Fn(usize) -> String| {
            let mut cells: Vec<String> = capacities.iter().map(|&capacity| of(capacity)).collect();
            cells.dedup();
            cells.join(", ")
        };
        let worst = match worst {
            0.0 => "-".to_owned(),
            worst => format!("{worst:.2}"),
        };
        let names = if begin == end {
            format!("{end}")
        } else {
            format!("{begin}-{end}")
        };
        writeln!(
            rows,
            "| {names} | {} | {} | {} | {worst} | {} |",
            listed(&bytes),
            listed(&|capacity| bytes(align(capacity))),
            listed(&|capacity| bytes(footprint(capacity))),
            listed(&|capacity| match rounds_of(footprint(capacity)) {
                0 => "berths".to_owned(),
                rounds => rounds.to_string(),
            }),
        )
        .expect("a string");
    }
    rows
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[test]
fn class_table_in_the_design_is_the_codes() {
    const BEGIN: &str = "<!-- classes -->\n";
    const END: &str = "<!-- /classes -->";
    let design = text("docs/design.md");
    let begin = design.find(BEGIN).expect("the table's begin") + BEGIN.len();
    let end = design.find(END).expect("the table's end");
    let expected = classes();
    if std::env::var_os("NDPOOL_BLESS").is_some_and(|bless| bless == "1") {
        let blessed = format!("{}{expected}{}", &design[..begin], &design[end..]);
        fs::write(root().join("docs/design.md"), blessed).expect("a writable document");
        return;
    }
    assert_eq!(
        &design[begin..end],
        expected,
        "NDPOOL_BLESS=1 writes it anew"
    );
}

/// Every `.rs` file under `src`, as the layer table names it.
fn sources(folder: &Path, prefix: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            sources(&entry.path(), &format!("{name}/"), found);
        } else if name.ends_with(".rs") {
            found.push(name);
        }
    }
}

#[test]
fn every_source_file_has_its_layer() {
    let design = text("docs/design.md");
    let mut named = Vec::new();
    for row in table(&design, "| layer | file |") {
        for code in row[1].split('`').skip(1).step_by(2) {
            match code.split_once('{') {
                None => named.push(code.to_owned()),
                Some((folder, rest)) => {
                    let (names, suffix) = rest.split_once('}').expect("a closed brace");
                    named.extend(
                        names
                            .split(',')
                            .map(|name| format!("{folder}{name}{suffix}")),
                    );
                }
            }
        }
    }
    let mut files = Vec::new();
    sources(&root().join("src"), "", &mut files);
    for file in &files {
        let layer = |name: &String| name == file || name.ends_with('/') && file.starts_with(name);
        assert!(
            named.iter().any(layer),
            "src/{file} has no layer in docs/design.md"
        );
    }
    for name in named
        .iter()
        .filter(|name| name.contains('.') || name.ends_with('/'))
    {
        let there = files
            .iter()
            .any(|file| file == name || name.ends_with('/') && file.starts_with(name));
        assert!(there, "docs/design.md names src/{name}, which is not there");
    }
}

#[test]
fn links_between_the_documents_lead_somewhere() {
    for entry in fs::read_dir(root().join("docs")).expect("docs/") {
        let name = entry
            .expect("an entry")
            .file_name()
            .into_string()
            .expect("a name");
        if name.ends_with(".md") {
            check_links("docs/", &format!("docs/{name}"));
        }
    }
    check_links("", "README.md");
}

/// What `cargo bench -p ndpool-bench -- --publish` wrote between the markers of that name.
fn measured(document: &str, block: &str) -> String {
    let text = text(document);
    let (_, rest) = text
        .split_once(&format!("<!-- bench: {block} -->\n"))
        .unwrap_or_else(|| panic!("{document} has no block {block}"));
    let (inside, _) = rest.split_once("<!-- /bench -->").expect("an end");
    assert!(!inside.is_empty(), "{document}: {block} is not filled");
    inside.to_owned()
}

#[test]
fn measured_numbers_of_the_readme_are_the_benchmarks() {
    assert_eq!(
        measured("README.md", "summary"),
        measured("docs/benchmarks.md", "summary")
    );
}

#[test]
fn every_gate_that_is_not_met_has_its_reason() {
    let page = text("docs/benchmarks.md");
    let (_, reasons) = page
        .split_once("What stands behind a row")
        .expect("the reasons");
    let numbers: Vec<&str> = reasons
        .lines()
        .skip_while(|line| !line.starts_with("- "))
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.strip_prefix("- ")?.split(':').next())
        .flat_map(|numbers| numbers.split(", "))
        .collect();
    for row in measured("docs/benchmarks.md", "missed").lines() {
        let Some(number) = row.strip_prefix("| ").and_then(|it| it.split(' ').next()) else {
            continue;
        };
        let given = number == "#" || numbers.contains(&number);
        assert!(given, "no reason is given for gate {number}: {row}");
    }
}

fn check_links(folder: &str, document: &str) {
    for link in text(document).split("](").skip(1) {
        let link = link.split([')', '#', ' ']).next().expect("an end");
        if !link.is_empty() && !link.contains("://") {
            let path = root().join(folder).join(link);
            assert!(path.exists(), "{document} links to {link}");
        }
    }
}

#[test]
fn every_test_named_in_the_verification_exists() {
    let verification = text("docs/verification.md");
    let mut named = 0;
    // Backticks of a code block pair up differently, so they are left out.
    for line in verification.lines().filter(|line| line.starts_with('|')) {
        for quoted in line.split('`').skip(1).step_by(2) {
            let Some((file, test)) = quoted.split_once("::") else {
                continue;
            };
            if file.starts_with(char::is_uppercase) {
                continue;
            }
            named += 1;
            let there = ["tests", "loom-tests", "src"].iter().any(|folder| {
                let text = fs::read_to_string(root().join(folder).join(format!("{file}.rs")));
                text.is_ok_and(|text| text.contains(&format!("fn {test}(")))
            });
            assert!(there, "there is no {quoted}");
        }
    }
    assert!(named > 50, "{named} tests are named");
}
