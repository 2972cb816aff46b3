//! What must not compile, each with a twin that does.
#![cfg(feature = "ndarray")]

#[test]
fn misuse_does_not_compile_and_its_twin_does() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/fail/*.rs");
    cases.pass("tests/ui/pass/*.rs");
}

#[test]
fn every_case_has_a_twin() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ui");
    let names = |folder: &str| -> Vec<String> {
        let files = std::fs::read_dir(format!("{root}/{folder}")).unwrap();
        let name = |file: std::io::Result<std::fs::DirEntry>| {
            let name = file.unwrap().file_name().into_string().unwrap();
            name.strip_suffix(".rs").map(str::to_owned)
        };
        files.filter_map(name).collect()
    };
    let twins = names("pass");
    for case in names("fail") {
        let twin = if case.starts_with("scoped_") {
            "scoped".to_owned()
        } else {
            case.clone()
        };
        assert!(twins.contains(&twin), "{case} has no twin");
    }
}
