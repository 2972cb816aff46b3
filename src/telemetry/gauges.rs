//! A pool's numbers as gauges and counters of the crate `metrics`.

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};

use crate::pool::Pool;
use crate::stats::{Bytes, ClassStats, Stats};

impl Pool {
    /// Publishes the pool's numbers through the recorder that is installed in `metrics`: to be
    /// called from time to time, for example whenever an exporter is asked. Costs what
    /// [`stats`](Pool::stats) costs; without a recorder it does nothing.
    ///
    /// | name | kind | labels | unit |
    /// |---|---|---|---|
    /// | `ndpool_held_bytes`, `ndpool_budget_bytes`, `ndpool_peak_held_bytes` | gauge | `pool` | bytes |
    /// | `ndpool_bytes` | gauge | `pool`, `state`: `live`, `cached`, `depot` | bytes |
    /// | `ndpool_class_blocks` | gauge | `pool`, `class`, `state` | blocks |
    /// | `ndpool_hits_total`, `ndpool_misses_total`, `ndpool_exchanges_total` | counter | `pool` | |
    /// | `ndpool_births_total`, `ndpool_deaths_total`, `ndpool_trims_total` | counter | `pool` | |
    /// | `ndpool_trimmed_bytes_total` | counter | `pool` | bytes |
    ///
    /// `pool` is the number of the pool in the process, from 1; `class` the bytes that its blocks
    /// hold, or `none`.
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn publish_metrics(&self) {
        let pool = self.core().life().to_string();
        let stats = self.stats();
        describe();
        publish_bytes(&pool, &stats);
        publish_counts(&pool, &stats);
        for class in &stats.classes {
            publish_class(&pool, class);
        }
    }
}

fn describe() {
    describe_gauge!("ndpool_held_bytes", Unit::Bytes, "Bytes held in all");
    describe_gauge!(
        "ndpool_budget_bytes",
        Unit::Bytes,
        "Bytes that may be held by the footprint promise"
    );
    describe_gauge!(
        "ndpool_peak_held_bytes",
        Unit::Bytes,
        "Most bytes held at once"
    );
    describe_gauge!("ndpool_bytes", Unit::Bytes, "Bytes held, by state");
    describe_gauge!("ndpool_class_blocks", "Blocks held, by class and state");
    describe_counter!("ndpool_hits_total", "Requests served without the source");
    describe_counter!("ndpool_misses_total", "Requests that went to the source");
    describe_counter!("ndpool_exchanges_total", "Operations on the depot");
    describe_counter!("ndpool_births_total", "Blocks that came from the source");
    describe_counter!("ndpool_deaths_total", "Blocks that went back to it");
    describe_counter!("ndpool_trims_total", "Trims, on demand and by age");
    describe_counter!(
        "ndpool_trimmed_bytes_total",
        Unit::Bytes,
        "Bytes that trims gave back"
    );
}

fn publish_bytes(pool: &str, stats: &Stats) {
    let label = || pool.to_owned();
    gauge!("ndpool_held_bytes", "pool" => label()).set(stats.held_bytes as f64);
    gauge!("ndpool_budget_bytes", "pool" => label()).set(stats.budget_bytes as f64);
    gauge!("ndpool_peak_held_bytes", "pool" => label()).set(stats.peak_held_bytes as f64);
    for (state, bytes) in [
        ("live", stats.live_bytes),
        ("cached", stats.resting_cached_bytes),
        ("depot", stats.resting_depot_bytes),
    ] {
        gauge!("ndpool_bytes", "pool" => label(), "state" => state).set(bytes as f64);
    }
}

fn publish_counts(pool: &str, stats: &Stats) {
    let label = || pool.to_owned();
    counter!("ndpool_hits_total", "pool" => label()).absolute(stats.hits);
    counter!("ndpool_misses_total", "pool" => label()).absolute(stats.misses);
    counter!("ndpool_exchanges_total", "pool" => label()).absolute(stats.exchanges);
    counter!("ndpool_births_total", "pool" => label()).absolute(stats.births);
    counter!("ndpool_deaths_total", "pool" => label()).absolute(stats.deaths);
    counter!("ndpool_trims_total", "pool" => label()).absolute(stats.trims);
    counter!("ndpool_trimmed_bytes_total", "pool" => label()).absolute(stats.trimmed_bytes);
}

fn publish_class(pool: &str, class: &ClassStats) {
    let name = match class.capacity {
        0 => "none".to_owned(),
        bytes => Bytes(bytes).to_string(),
    };
    for (state, blocks) in [
        ("live", class.live),
        ("cached", class.cached),
        ("depot", class.depot),
    ] {
        let labels = [
            ("pool", pool.to_owned()),
            ("class", name.clone()),
            ("state", state.to_owned()),
        ];
        gauge!("ndpool_class_blocks", &labels).set(blocks as f64);
    }
}
