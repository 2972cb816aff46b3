//! What must not compile, each with a twin that does. Each case ends with the error's code, if it has
//! one, and a part of its text; any compiler has to agree to these. The whole texts, beside the cases, are
//! those of one compiler.
#![cfg(feature = "ndarray")]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// The compiler that the `.stderr` files are of.
const TEXTS_OF: &str = "rustc 1.95.";

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "ui"].iter().collect()
}

/// Names of the cases in one folder.
fn cases(kind: &str) -> Vec<String> {
    let files = fs::read_dir(folder().join(kind)).unwrap();
    let name = |file: std::io::Result<fs::DirEntry>| {
        let name = file.unwrap().file_name().into_string().unwrap();
        name.strip_suffix(".rs").map(str::to_owned)
    };
    files.filter_map(name).collect()
}

/// An error: its code, or nothing, and its text.
type Refusal = (String, String);

/// What a case says that the compiler says.
fn expected(case: &str) -> Refusal {
    let source = fs::read_to_string(folder().join("fail").join(case).with_extension("rs")).unwrap();
    let last = source.lines().last().unwrap();
    let said = last
        .strip_prefix("// error")
        .and_then(|said| said.split_once(": "));
    let (code, text) = said.unwrap_or_else(|| panic!("{case} does not end with its error"));
    (code.trim_matches(['[', ']']).to_owned(), text.to_owned())
}

/// A package with a program for each case, outside the workspace.
fn package() -> PathBuf {
    let root = env!("CARGO_MANIFEST_DIR");
    let package = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("ui");
    fs::create_dir_all(&package).unwrap();
    let mut manifest = format!(
        "[package]\nname = \"ui\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n\
         [dependencies]\nndarray = \"0.17\"\n\
         ndpool = {{ path = {root:?}, features = [\"ndarray\"] }}\n"
    );
    for case in cases("fail") {
        let path = folder().join("fail").join(&case).with_extension("rs");
        manifest += &format!("[[bin]]\nname = {case:?}\npath = {path:?}\n");
    }
    fs::write(package.join("Cargo.toml"), manifest).unwrap();
    fs::copy(
        PathBuf::from(root).join("Cargo.lock"),
        package.join("Cargo.lock"),
    )
    .unwrap();
    package
}

/// The errors of every case.
fn refusals() -> BTreeMap<String, Vec<Refusal>> {
    let package = package();
    let output = Command::new(env!("CARGO"))
        .args(["check", "--bins", "--keep-going", "--offline", "--quiet"])
        .arg("--message-format=json")
        .current_dir(&package)
        .env("CARGO_TARGET_DIR", package.join("target"))
        .env_remove("RUSTFLAGS")
        .output()
        .unwrap();
    let mut refusals = BTreeMap::<_, Vec<_>>::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let message = &line["message"];
        let text = message["message"].as_str().unwrap_or_default();
        if message["level"] != "error" || text.starts_with("aborting due to") {
            continue;
        }
        let code = message["code"]["code"].as_str().unwrap_or_default();
        let case = line["target"]["name"].as_str().unwrap().to_owned();
        let refusal = (code.to_owned(), text.to_owned());
        refusals.entry(case).or_default().push(refusal);
    }
    assert!(
        !refusals.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    refusals
}

#[test]
fn misuse_is_refused_for_its_own_reason() {
    let refusals = refusals();
    let cases = cases("fail");
    assert!(cases.len() >= 17);
    for case in cases {
        let (code, text) = expected(&case);
        let found = refusals.get(&case);
        let found = found.unwrap_or_else(|| panic!("{case} compiles"));
        for (found_code, found_text) in found {
            assert!(
                *found_code == code && found_text.contains(&text),
                "{case}: expected {code} {text}, found {found:?}"
            );
        }
    }
}

#[test]
fn twins_compile_and_run_and_the_texts_are_the_compilers() {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(compiler).arg("--version").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let tests = trybuild::TestCases::new();
    tests.pass("tests/ui/pass/*.rs");
    if version.starts_with(TEXTS_OF) {
        tests.compile_fail("tests/ui/fail/*.rs");
    }
}

#[test]
fn every_case_has_a_twin() {
    let twins = cases("pass");
    for case in cases("fail") {
        let twin = if case.starts_with("scoped_") {
            "scoped".to_owned()
        } else {
            case.clone()
        };
        assert!(twins.contains(&twin), "{case} has no twin");
    }
}
