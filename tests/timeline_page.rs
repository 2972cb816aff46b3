//! The page that a timeline writes, opened in a headless browser without a network: it has to be
//! drawn. Skipped, with the reason printed, where there is no browser; `NDPOOL_REQUIRE_BROWSER=1`
//! makes that a failure.

use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::Command;

use ndpool::timeline::{Recording, Timeline};
use ndpool::{Checks, Pool};

/// The browser, from `NDPOOL_BROWSER` or by its usual names. `None` is a skip that was printed.
fn browser() -> Option<PathBuf> {
    if let Some(told) = env::var_os("NDPOOL_BROWSER") {
        return Some(told.into());
    }
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|file| file.is_file());
    if found.is_none() {
        let required = env::var_os("NDPOOL_REQUIRE_BROWSER").is_some_and(|value| value == "1");
        assert!(!required, "no chromium, and NDPOOL_REQUIRE_BROWSER=1");
        println!("skipped: no chromium in PATH, and no NDPOOL_BROWSER");
    }
    found
}

/// Runs the browser on a page, with every host name unknown and a profile of its own.
fn run(browser: &Path, folder: &Path, page: &Path, what: &str) -> Vec<u8> {
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
        ])
        .args([
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--window-size=1280,1500",
        ])
        .arg(format!(
            "--user-data-dir={}",
            folder.join("profile").display()
        ))
        .arg(what)
        .arg(page)
        .output()
        .expect("the browser runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}", output.status);
    output.stdout
}

/// The pixels of a picture, and its width.
fn pixels(path: &Path) -> (Vec<[u8; 3]>, usize) {
    let decoder = png::Decoder::new(BufReader::new(File::open(path).expect("a screenshot")));
    let mut reader = decoder.read_info().expect("a PNG");
    let mut bytes = vec![0; reader.output_buffer_size().expect("a size")];
    let info = reader.next_frame(&mut bytes).expect("a frame");
    let samples = info.color_type.samples();
    assert!(samples >= 3, "a picture in colours");
    let pixels = bytes[..info.buffer_size()].chunks_exact(samples);
    (
        pixels.map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect(),
        info.width as usize,
    )
}

/// What is wrong with a screenshot; nothing, if all three charts are drawn in it.
fn check(path: &Path) -> Result<(), String> {
    let (pixels, width) = pixels(path);
    let mut colours: BTreeMap<[u8; 3], usize> = BTreeMap::new();
    // The charts' area: below the tiles, above the tables.
    let area = &pixels[width * 180..width * 1300];
    for pixel in area {
        *colours.entry(*pixel).or_default() += 1;
    }
    let count = |wanted: [u8; 3]| colours.get(&wanted).copied().unwrap_or(0);
    let bands = [
        ("live", [0x2f, 0x6d, 0xb3], 10_000),
        ("second class", [0xe0, 0x81, 0x2b], 1_000),
        ("depot", [0xa9, 0xb2, 0xbd], 1_000),
        ("from the source", [0x3c, 0x9a, 0x5f], 50),
        ("back to the source", [0x8a, 0x6b, 0xbd], 50),
        ("trim", [0x0f, 0x7f, 0x8c], 20),
        ("refusal", [0xc8, 0x32, 0x2f], 50),
        ("outline", [0x1d, 0x24, 0x30], 300),
    ];
    for (what, colour, least) in bands {
        let found = count(colour);
        if found < least {
            return Err(format!(
                "{what}: {found} pixels of {colour:02x?}, not {least}"
            ));
        }
    }
    match colours.len() {
        0..50 => Err(format!("{} colours only", colours.len())),
        _ => Ok(()),
    }
}

/// A program with a rise, a plateau, a trim and a refusal.
fn recording() -> Recording {
    let pool = Pool::builder()
        .checks(Checks::new())
        .limit(80 << 20)
        .timeline(Timeline::new(100_000).operations(true))
        .build();
    let mut live = Vec::new();
    for n in 0..40usize {
        let bytes = [1 << 20, 3 << 20, 700_000][n % 3];
        live.push(pool.allocate::<u8>(bytes).expect("below the limit"));
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
    assert!(pool.allocate::<u8>(90 << 20).is_err());
    for buffer in live.drain(..).step_by(2) {
        drop(buffer);
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
    pool.trim();
    std::thread::sleep(std::time::Duration::from_millis(10));
    pool.timeline().expect("the pool keeps one")
}

#[test]
fn the_page_asks_nothing_of_the_network() {
    let mut page = Vec::new();
    recording().write_html(&mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    let page = page.replace("http://www.w3.org/2000/svg", "");
    for word in [
        "http:", "https:", "//cdn", "src=", "href=", "@import", "url(", "fetch(",
    ] {
        assert!(!page.contains(word), "the page has `{word}`");
    }
}

#[test]
fn the_page_is_drawn_without_a_network() {
    let Some(browser) = browser() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("timeline.html");
    recording()
        .write_html(File::create(&page).unwrap())
        .unwrap();
    let shoot = |page: &Path, picture: &str| {
        let picture = folder.path().join(picture);
        let what = format!("--screenshot={}", picture.display());
        run(&browser, folder.path(), page, &what);
        check(&picture)
    };
    shoot(&page, "good.png").unwrap();

    let document = String::from_utf8(run(&browser, folder.path(), &page, "--dump-dom")).unwrap();
    for text in [
        "time since the pool was opened [ms]",
        "memory [MiB]",
        "limit 80 MiB",
        "Biggest holders at the peak",
        "hits of all requests",
    ] {
        assert!(document.contains(text), "the page lacks `{text}`");
    }

    // The same page with a fault in its script stays empty, and that is noticed.
    let text = std::fs::read_to_string(&page).unwrap();
    let broken = folder.path().join("broken.html");
    std::fs::write(
        &broken,
        text.replacen("function draw() {", "function draw() { nil();", 1),
    )
    .unwrap();
    let fault = shoot(&broken, "broken.png").unwrap_err();
    assert!(fault.contains("live: 0 pixels"), "{fault}");
}
