//! What arrives at a subscriber of `tracing` and at a recorder of `metrics`.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics_util::CompositeKey;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use ndpool::source::{Faulty, Os};
use ndpool::{Checks, Pool};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// An event: its level, its message, and its numbers.
type Told = (Level, String, BTreeMap<String, u64>);

/// Keeps what it is told by this crate.
#[derive(Clone, Default)]
struct Listener {
    told: Arc<Mutex<Vec<Told>>>,
    /// Whether to panic instead.
    panics: bool,
}

#[derive(Default)]
struct Fields {
    message: String,
    numbers: BTreeMap<String, u64>,
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.numbers.insert(field.name().to_owned(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        assert_eq!(field.name(), "message");
        self.message = format!("{value:?}");
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "ndpool"
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        assert!(!self.panics, "a subscriber that panics");
        let mut fields = Fields::default();
        event.record(&mut fields);
        let told = (*event.metadata().level(), fields.message, fields.numbers);
        self.told.lock().unwrap().push(told);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

fn numbers<const N: usize>(numbers: [(&str, u64); N]) -> BTreeMap<String, u64> {
    let numbers = numbers.into_iter();
    numbers
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// A birth, a refusal by the limit, a failure of the source, and a trim.
fn program(pool: &Pool) {
    drop(pool.allocate::<u8>(1 << 20).unwrap());
    drop(pool.allocate::<u8>(1 << 20).unwrap());
    assert!(pool.allocate::<u8>(32 << 20).is_err());
    assert!(pool.allocate::<u8>(4096).is_err());
    assert_eq!(pool.trim(), 1 << 20);
    assert_eq!(pool.trim(), 0);
}

fn pool() -> Pool {
    Pool::builder()
        .checks(Checks::new())
        .limit(16 << 20)
        .interval(Duration::from_secs(3600))
        .source(Faulty::every(Os::new(), 2))
        .build()
}

#[test]
fn births_trims_and_refusals_are_tracing_events() {
    let listener = Listener::default();
    tracing::subscriber::with_default(listener.clone(), || program(&pool()));
    let told = listener.told.lock().unwrap().clone();
    let bytes = 1 << 20;
    let expected: Vec<Told> = vec![
        (
            Level::TRACE,
            "birth".to_owned(),
            numbers([("bytes", bytes), ("class_bytes", bytes)]),
        ),
        (
            Level::WARN,
            "refusal".to_owned(),
            numbers([("requested", 32 << 20), ("limit", 16 << 20)]),
        ),
        (
            Level::WARN,
            "source failure".to_owned(),
            numbers([("requested", 4096)]),
        ),
        (Level::DEBUG, "trim".to_owned(), numbers([("bytes", bytes)])),
    ];
    assert_eq!(told, expected);
}

/// A subscriber that panics loses its events and nothing else.
#[test]
fn a_panicking_subscriber_does_not_harm_the_pool() {
    let listener = Listener {
        panics: true,
        ..Listener::default()
    };
    let pool = pool();
    tracing::subscriber::with_default(listener, || program(&pool));
    pool.audit().unwrap();
    assert_eq!(pool.stats().held_bytes, 0);
}

#[test]
fn the_numbers_of_a_pool_are_published_as_metrics() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let pool = Pool::builder().checks(Checks::new()).build();
    let _live = pool.allocate::<u8>(100_000).unwrap();
    for _ in 0..5 {
        drop(pool.allocate::<u8>(3000).unwrap());
    }
    metrics::with_local_recorder(&recorder, || pool.publish_metrics());
    let stats = pool.stats();
    let found: BTreeMap<String, (DebugValue, bool)> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, unit, about, value)| {
            (name_of(&key), (value, unit.is_some() || about.is_some()))
        })
        .collect();
    let number = |name: &str| match found.get(name) {
        Some((DebugValue::Counter(n), true)) => *n,
        Some((DebugValue::Gauge(n), true)) => n.into_inner() as u64,
        other => panic!("{name} is {other:?} of {found:?}"),
    };
    assert_eq!(number("ndpool_held_bytes"), stats.held_bytes as u64);
    assert_eq!(number("ndpool_budget_bytes"), stats.budget_bytes as u64);
    assert_eq!(
        number("ndpool_peak_held_bytes"),
        stats.peak_held_bytes as u64
    );
    assert_eq!(number("ndpool_bytes state=live"), stats.live_bytes as u64);
    assert_eq!(
        number("ndpool_bytes state=cached"),
        stats.resting_cached_bytes as u64
    );
    assert_eq!(number("ndpool_bytes state=depot"), 0);
    assert_eq!(
        (number("ndpool_hits_total"), number("ndpool_misses_total")),
        (4, 2)
    );
    assert_eq!(
        (number("ndpool_births_total"), number("ndpool_deaths_total")),
        (2, 0)
    );
    assert_eq!(number("ndpool_class_blocks class=3 KiB state=cached"), 1);
    assert_eq!(number("ndpool_class_blocks class=112 KiB state=live"), 1);
    assert!(stats.live_bytes > 0 && stats.resting_cached_bytes > 0);

    // A second look replaces the first.
    drop(pool.allocate::<u8>(3000).unwrap());
    metrics::with_local_recorder(&recorder, || pool.publish_metrics());
    let hits = snapshotter.snapshot().into_vec().into_iter();
    let hits = hits.filter(|(key, ..)| name_of(key) == "ndpool_hits_total");
    let hits: Vec<DebugValue> = hits.map(|(.., value)| value).collect();
    // The recorder takes counters off as it reads them: what is left is what came since.
    assert!(matches!(hits[..], [DebugValue::Counter(1 | 5)]), "{hits:?}");
}

/// Name and labels of a metric, but for the pool's number.
fn name_of(key: &CompositeKey) -> String {
    let key = key.key();
    let mut name = key.name().to_owned();
    for label in key.labels().filter(|label| label.key() != "pool") {
        name += &format!(" {}={}", label.key(), label.value());
    }
    name
}
