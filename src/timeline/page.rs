//! A recording as one page of HTML that needs no network.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use serde::Serialize;

use super::event::{EventKind, class_name};
use super::recording::Recording;
use super::series::{Happened, Parts, Series};
use crate::constants::timeline::COLOURED_CLASSES;

/// The page, with a mark where the data goes.
const PAGE: &str = include_str!("page.html");
const MARK: &str = "\"DATA\"";

/// What the page draws.
#[derive(Serialize)]
struct Data {
    pool: u64,
    process: u32,
    seconds: f64,
    events: usize,
    lost: u64,
    operations: bool,
    limit: Option<usize>,
    peak_bytes: u64,
    peak_seconds: f64,
    /// At the end, all classes together.
    closing: Parts,
    hit_rate: f64,
    births: u64,
    deaths: u64,
    /// Seconds at which the first stretch begins, and seconds of each.
    begin: f64,
    width: f64,
    /// The stretch in which most was held.
    peak: usize,
    classes: Vec<Class>,
    happened: Vec<Happened>,
    threads: Vec<Thread>,
}

/// A band of the drawing, and a row of the table.
#[derive(Serialize)]
struct Class {
    name: String,
    /// Whether it has a colour of its own; the others share one.
    coloured: bool,
    /// By stretch.
    live: Vec<u64>,
    cached: Vec<u64>,
    depot: Vec<u64>,
    /// In the recording.
    births: u64,
    deaths: u64,
}

/// What a thread did in the recording.
#[derive(Serialize, Default)]
struct Thread {
    number: u32,
    name: String,
    births: u64,
    born_bytes: u64,
    allocates: u64,
    allocated_bytes: u64,
    drops: u64,
    dropped_bytes: u64,
    turned_down: u64,
}

impl Recording {
    /// Writes the recording as one page of HTML: memory over time by class, live against resting,
    /// what came from the source and went back, trims and refusals, and the biggest holders at any
    /// moment. It has its script and its data in itself and asks nothing of the network.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write_html(&self, mut to: impl Write) -> io::Result<()> {
        let (head, tail) = PAGE.split_once(MARK).expect("the page has its mark");
        to.write_all(head.as_bytes())?;
        // A name must not end the script: `<` occurs in strings only, where it may be escaped.
        let data = serde_json::to_string(&self.data())?.replace('<', "\\u003c");
        to.write_all(data.as_bytes())?;
        to.write_all(tail.as_bytes())?;
        to.flush()
    }

    fn data(&self) -> Data {
        let series = Series::of(self);
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        let (peak_bytes, peak_nanos) = self.peak();
        let mut closing = self.opening.clone();
        closing.walk(&self.events);
        Data {
            pool: self.pool,
            process: std::process::id(),
            seconds: seconds(self.nanos),
            events: self.events.len(),
            lost: self.lost,
            operations: self.operations,
            limit: self.limit,
            peak_bytes,
            peak_seconds: seconds(peak_nanos),
            closing: Parts::of(closing.total(), self.operations),
            hit_rate: self.stats.hit_rate(),
            births: self.stats.births,
            deaths: self.stats.deaths,
            begin: seconds(series.begin),
            width: seconds(series.width),
            peak: series.peak(),
            classes: self.classes(&series),
            threads: self.threads(),
            happened: series.happened,
        }
    }

    /// All classes that ever held something, the biggest at its own peak first.
    fn classes(&self, series: &Series) -> Vec<Class> {
        let names: BTreeSet<Option<u8>> = series
            .levels
            .iter()
            .flat_map(|levels| levels.iter())
            .filter(|(_, parts)| parts.sum() > 0)
            .map(|(class, _)| *class)
            .collect();
        let mut classes: Vec<(u64, Class)> = names
            .into_iter()
            .map(|class| {
                let parts = |levels: &BTreeMap<_, Parts>| levels.get(&class).copied();
                let parts = series.levels.iter().map(|it| parts(it).unwrap_or_default());
                let parts: Vec<Parts> = parts.collect();
                let (births, deaths) = self.births_and_deaths(class);
                let peak = parts.iter().map(|parts| parts.sum()).max();
                let row = Class {
                    name: class_name(class),
                    coloured: false,
                    live: parts.iter().map(|parts| parts.live).collect(),
                    cached: parts.iter().map(|parts| parts.cached).collect(),
                    depot: parts.iter().map(|parts| parts.depot).collect(),
                    births,
                    deaths,
                };
                (peak.unwrap_or(0), row)
            })
            .collect();
        classes.sort_by_key(|(peak, _)| std::cmp::Reverse(*peak));
        let mut classes: Vec<Class> = classes.into_iter().map(|(_, class)| class).collect();
        for class in classes.iter_mut().take(COLOURED_CLASSES) {
            class.coloured = true;
        }
        classes
    }

    fn births_and_deaths(&self, class: Option<u8>) -> (u64, u64) {
        let count = |kind: EventKind| {
            let events = self.events.iter();
            let events = events.filter(|event| event.class == class && event.kind == kind);
            events.count() as u64
        };
        (count(EventKind::Birth), count(EventKind::Death))
    }

    /// What each thread did, who allocated most first.
    fn threads(&self) -> Vec<Thread> {
        let mut threads: BTreeMap<u32, Thread> = BTreeMap::new();
        for event in &self.events {
            let thread = threads.entry(event.thread).or_default();
            let bytes = event.bytes as u64;
            match event.kind {
                EventKind::Birth => {
                    thread.births += 1;
                    thread.born_bytes += bytes;
                }
                EventKind::Allocate => {
                    thread.allocates += 1;
                    thread.allocated_bytes += bytes;
                }
                EventKind::Drop => {
                    thread.drops += 1;
                    thread.dropped_bytes += bytes;
                }
                EventKind::Refusal { .. } | EventKind::Failure => thread.turned_down += 1,
                _ => {}
            }
        }
        let mut threads: Vec<Thread> = threads
            .into_iter()
            .map(|(number, thread)| Thread {
                number,
                name: self.name_of(number),
                ..thread
            })
            .collect();
        threads.sort_by_key(|thread| {
            std::cmp::Reverse((thread.allocated_bytes, thread.born_bytes, thread.drops))
        });
        threads
    }
}
