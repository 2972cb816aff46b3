//! Plots of a run, as SVG.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;

use plotters::chart::ChartBuilder;
use plotters::coord::Shift;
use plotters::prelude::{
    Circle, Color, DrawingArea, IntoDrawingArea, IntoLogRange, PathElement, Polygon, RGBColor,
    SVGBackend, ShapeStyle, Text, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{IntoFont, TextStyle};

use crate::case::{self, ALLOCATORS, ARRAYS, OURS, POOLS, TRIMMER, bytes};
use crate::measure::Sample;
use crate::report::time;
use crate::rows::{Figure, PEAK, Run, TIME};
use crate::workloads;

const WIDTH: u32 = 960;
/// Room for the names of contenders.
const LEGEND: u32 = 190;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(225, 225, 225);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// How a contender looks: a colour of Okabe and Ito's, which all eyes tell apart, and a shape.
#[derive(Clone, Copy)]
struct Look {
    colour: RGBColor,
    shape: Shape,
    ours: bool,
}

#[derive(Clone, Copy)]
enum Shape {
    Disc,
    Square,
    Diamond,
    Up,
    Down,
}

const VERMILION: RGBColor = RGBColor(213, 94, 0);
const BLUE: RGBColor = RGBColor(0, 114, 178);
const GREEN: RGBColor = RGBColor(0, 158, 115);
const PURPLE: RGBColor = RGBColor(204, 121, 167);
const ORANGE: RGBColor = RGBColor(230, 159, 0);
const SKY: RGBColor = RGBColor(86, 180, 233);
const BLACK: RGBColor = RGBColor(0, 0, 0);
const GREY: RGBColor = RGBColor(140, 140, 140);

fn look(contender: &str) -> Look {
    let (colour, shape) = match contender {
        OURS => (VERMILION, Shape::Disc),
        TRIMMER | ARRAYS => (VERMILION, Shape::Square),
        "scoped" => (VERMILION, Shape::Diamond),
        "glibc" => (BLACK, Shape::Square),
        "glibc-raised" | "ndarray" => (GREY, Shape::Square),
        "mimalloc" => (BLUE, Shape::Diamond),
        "jemalloc" => (GREEN, Shape::Up),
        "snmalloc" => (PURPLE, Shape::Down),
        "rpmalloc" => (ORANGE, Shape::Up),
        "tcmalloc" => (SKY, Shape::Down),
        "zeropool" => (BLUE, Shape::Down),
        "opool" => (GREEN, Shape::Square),
        "object-pool" => (PURPLE, Shape::Up),
        "lockfree-object-pool" => (ORANGE, Shape::Square),
        "sharded-slab" => (SKY, Shape::Diamond),
        "by-hand" | "reused" => (GREY, Shape::Diamond),
        _ => (BLACK, Shape::Up),
    };
    Look {
        colour,
        shape,
        ours: colour == VERMILION,
    }
}

/// Writes every plot that the run covers into a folder, and says how many.
pub fn write(folder: &Path, run: &Run) -> io::Result<usize> {
    fs::create_dir_all(folder)?;
    let mut written = 0;
    for plot in plots(run) {
        if !plot.content.is_empty() {
            plot.draw(&folder.join(plot.file))?;
            written += 1;
        }
    }
    Ok(written)
}

fn plots(run: &Run) -> Vec<Plot> {
    let sizes: Vec<usize> = (6..=28).step_by(2).map(|power| 1 << power).collect();
    vec![
        pairs(
            run,
            "pair-untouched.svg",
            "Allocate + free, one buffer at a time, not touched",
            &sizes,
            "untouched, depth 1",
            &ALLOCATORS,
        ),
        pairs(
            run,
            "pair-pools.svg",
            "Allocate + free, one buffer at a time, beside other pools",
            &sizes,
            "untouched, depth 1",
            &POOLS,
        ),
        pairs(
            run,
            "pair-touched.svg",
            "Four buffers at a time, a byte a page written",
            &sizes,
            "a byte a page, depth 4",
            &ALLOCATORS,
        ),
        expressions(run),
        scaling(run),
        dots(
            run,
            "shared-pool.svg",
            "Allocate + free, two threads on one pool",
            "time per pair on one thread",
            "shared-pool",
            TIME,
            time,
        ),
        dots(
            run,
            "pipe.svg",
            "Producer to consumer",
            "time per buffer",
            "pipe",
            TIME,
            time,
        ),
        dots(
            run,
            "larson-time.svg",
            "Random sizes in random slots: time",
            "time per free + allocate",
            "larson",
            TIME,
            time,
        ),
        dots(
            run,
            "larson-peak.svg",
            "Random sizes in random slots: peak resident memory",
            "peak resident memory, MiB",
            "larson",
            |it| PEAK(it).map(|kib| kib / 1024.0),
            plain_number,
        ),
        dots(
            run,
            "trace.svg",
            "Recorded programs, replayed",
            "processor time per request or free",
            "trace",
            TIME,
            time,
        ),
        latencies(run),
        footprint(run),
    ]
}

/// A number without idle zeros.
fn plain_number(value: f64) -> String {
    if value >= 1.0 {
        format!("{value:.0}")
    } else {
        format!("{value}")
    }
}

/// A picture and its file.
struct Plot {
    file: &'static str,
    title: String,
    /// The axis of values, which is logarithmic, with its unit.
    value: &'static str,
    shown: fn(f64) -> String,
    content: Content,
}

enum Content {
    /// A line for each contender over numbered places, of which some are named.
    Lines {
        place: &'static str,
        named: fn(f64) -> String,
        series: Vec<(&'static str, Vec<(f64, f64)>)>,
    },
    /// A row for each case with a mark for each contender.
    Dots(Vec<(String, Vec<(&'static str, f64)>)>),
}

impl Content {
    fn is_empty(&self) -> bool {
        match self {
            Self::Lines { series, .. } => series.iter().all(|(_, points)| points.is_empty()),
            Self::Dots(rows) => rows.iter().all(|(_, marks)| marks.is_empty()),
        }
    }

    fn values(&self) -> Vec<f64> {
        match self {
            Self::Lines { series, .. } => series
                .iter()
                .flat_map(|(_, points)| points.iter().map(|it| it.1))
                .collect(),
            Self::Dots(rows) => rows
                .iter()
                .flat_map(|(_, marks)| marks.iter().map(|it| it.1))
                .collect(),
        }
    }

    /// Who takes part, ours first.
    fn contenders(&self) -> Vec<&'static str> {
        let all: Vec<&'static str> = match self {
            Self::Lines { series, .. } => series
                .iter()
                .filter(|(_, points)| !points.is_empty())
                .map(|it| it.0)
                .collect(),
            Self::Dots(rows) => rows
                .iter()
                .flat_map(|(_, marks)| marks.iter().map(|it| it.0))
                .collect(),
        };
        let mut once = Vec::new();
        for name in all {
            if !once.contains(&name) {
                once.push(name);
            }
        }
        once
    }
}

fn pairs(
    run: &Run,
    file: &'static str,
    title: &str,
    sizes: &[usize],
    how: &str,
    contenders: &[&'static str],
) -> Plot {
    let series = contenders.iter().map(|&name| {
        let points = sizes.iter().filter_map(|&size| {
            let case = format!("{}, {how}", bytes(size));
            let ns = run.figure("pair", &case, name, TIME)?;
            Some((f64::from(size.ilog2()), ns))
        });
        (name, points.collect())
    });
    Plot {
        file,
        title: title.into(),
        value: "time per pair",
        shown: time,
        content: Content::Lines {
            place: "size of a buffer",
            named: |power| bytes(1 << power as u32),
            series: series.collect(),
        },
    }
}

fn expressions(run: &Run) -> Plot {
    let contenders = ["ndpool", ARRAYS, "scoped"]
        .into_iter()
        .chain(ALLOCATORS.into_iter().skip(1))
        .chain(["reused"]);
    let series = contenders.map(|name| {
        let points = [1_000_u32, 3_000, 10_000, 100_000, 1_000_000, 10_000_000]
            .into_iter()
            .filter_map(|n| {
                let ns = run.figure("expr", &format!("n = {n}"), name, TIME)?;
                Some((f64::from(n).log10(), ns / f64::from(n)))
            });
        (name, points.collect())
    });
    Plot {
        file: "expr.svg",
        title: "(a + b) * d with temporaries from each contender (reused: kept by hand)".into(),
        value: "time per element",
        shown: time,
        content: Content::Lines {
            place: "elements of an array (f64)",
            named: |power| format!("1e{power:.0}"),
            series: series.collect(),
        },
    }
}

fn scaling(run: &Run) -> Plot {
    let series = ALLOCATORS.into_iter().chain(["zeropool", "array-queue"]);
    let series = series.map(|name| {
        let points = (1..=4).filter_map(|threads| {
            let case = format!("64 KiB, {}", case::threads(threads));
            let ns = run.figure("scaling", &case, name, TIME)?;
            Some((threads as f64, ns))
        });
        (name, points.collect())
    });
    Plot {
        file: "scaling.svg",
        title: "Allocate + free of 64 KiB, four at a time, by threads".into(),
        value: "time per pair on one thread",
        shown: time,
        content: Content::Lines {
            place: "threads (more than cores wait for each other)",
            named: |threads| format!("{threads:.0}"),
            series: series.collect(),
        },
    }
}

fn dots(
    run: &Run,
    file: &'static str,
    title: &str,
    value: &'static str,
    workload: &str,
    of: Figure,
    shown: fn(f64) -> String,
) -> Plot {
    let cases = workloads::ALL
        .iter()
        .find(|it| it.name == workload)
        .map(|it| (it.cases)())
        .unwrap_or_default();
    let rows = cases.into_iter().filter_map(|case| {
        let marks: Vec<_> = case
            .contenders
            .iter()
            .filter_map(|&name| Some((name, run.figure(workload, &case.label, name, of)?)))
            .collect();
        (!marks.is_empty()).then_some((case.label, marks))
    });
    Plot {
        file,
        title: title.into(),
        value,
        shown,
        content: Content::Dots(rows.collect()),
    }
}

fn latencies(run: &Run) -> Plot {
    const CASE: &str = "4 KiB to 256 KiB, untouched, 1 thread";
    const QUANTILES: [fn(&Sample) -> Option<u64>; 4] = [
        |it| it.p50_ns,
        |it| it.p99_ns,
        |it| it.p999_ns,
        |it| it.max_ns,
    ];
    let series = ALLOCATORS.into_iter().chain(["zeropool"]).map(|name| {
        let points = QUANTILES.iter().enumerate().filter_map(|(index, of)| {
            let ns = run.figure("latency", CASE, name, |it| of(it).map(|ns| ns as f64))?;
            Some((index as f64, ns))
        });
        (name, points.collect())
    });
    Plot {
        file: "latency.svg",
        title: format!("Latency of free + allocate, {CASE}"),
        value: "latency (the clock included)",
        shown: time,
        content: Content::Lines {
            place: "quantile",
            named: |index| {
                ["median", "99 %", "99.9 %", "max"]
                    .get(index.round() as usize)
                    .copied()
                    .unwrap_or_default()
                    .into()
            },
            series: series.collect(),
        },
    }
}

fn footprint(run: &Run) -> Plot {
    const MOMENTS: [(&str, Figure); 3] = [
        ("all freed", |it| it.freed_kib.map(|kib| kib as f64)),
        ("2 s later", |it| it.settled_kib.map(|kib| kib as f64)),
        ("after a trim", |it| it.trimmed_kib.map(|kib| kib as f64)),
    ];
    let contenders = [OURS, TRIMMER]
        .into_iter()
        .chain(ALLOCATORS.into_iter().skip(1))
        .chain(["zeropool"]);
    let rows = MOMENTS.iter().map(|&(moment, of)| {
        let marks = contenders.clone().filter_map(|name| {
            // A logarithmic axis has no zero.
            let kib = run.figure("footprint", "1 GiB", name, of)?.max(1024.0) / 1024.0;
            Some((name, kib))
        });
        (moment.to_owned(), marks.collect())
    });
    Plot {
        file: "footprint.svg",
        title: "Resident memory after a burst of 1 GiB".into(),
        value: "resident memory, MiB (at least 1)",
        shown: plain_number,
        content: Content::Dots(rows.collect()),
    }
}

/// What plotters says went wrong, which is a file that cannot be written.
fn failed(why: impl std::error::Error) -> io::Error {
    io::Error::other(why.to_string())
}

impl Plot {
    fn draw(&self, path: &Path) -> io::Result<()> {
        let height = match &self.content {
            Content::Lines { .. } => 540,
            Content::Dots(rows) => {
                let names = self.content.contenders().len() as u32;
                (150 + 64 * rows.len() as u32).max(90 + 24 * names)
            }
        };
        let root = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let values = self.content.values();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min) / 1.4;
        let high = values.iter().copied().fold(0.0, f64::max) * 1.4;
        // Whole decades: between them the axis may have no label.
        let decade = |power: f64| 10_f64.powf(power);
        let (low, high) = (decade(low.log10().floor()), decade(high.log10().ceil()));
        match &self.content {
            Content::Lines {
                place,
                named,
                series,
            } => self.lines(&root, low..high, place, *named, series)?,
            Content::Dots(rows) => self.dots(&root, low..high, rows)?,
        }
        legend(&root, &self.content.contenders())?;
        root.present().map_err(failed)
    }

    fn lines(
        &self,
        root: &Area<'_>,
        values: Range<f64>,
        place: &str,
        named: fn(f64) -> String,
        series: &[(&'static str, Vec<(f64, f64)>)],
    ) -> io::Result<()> {
        let places = || {
            series
                .iter()
                .flat_map(|(_, points)| points.iter().map(|it| it.0))
        };
        let first = places().fold(f64::INFINITY, f64::min);
        let last = places().fold(f64::NEG_INFINITY, f64::max);
        let mut chart = ChartBuilder::on(root)
            .caption(&self.title, caption())
            .margin(14)
            .margin_right(LEGEND)
            .x_label_area_size(48)
            .y_label_area_size(80)
            .build_cartesian_2d((first - 0.2)..(last + 0.2), values.log_scale())
            .map_err(failed)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GRID)
            .light_line_style(WHITE)
            .axis_style(INK)
            .label_style(small())
            .axis_desc_style(plain())
            .x_desc(place)
            .y_desc(self.value)
            .x_labels(0)
            .y_labels(12)
            .y_label_formatter(&|value| (self.shown)(*value))
            .draw()
            .map_err(failed)?;
        let area = chart.plotting_area();
        let bottom = area.get_pixel_range().1.end;
        let floor = area.get_y_range().start;
        let mut ticks: Vec<f64> = places().collect();
        ticks.sort_by(f64::total_cmp);
        ticks.dedup();
        for tick in ticks.into_iter().filter(|it| it.fract() == 0.0) {
            let (x, _) = area.map_coordinate(&(tick, floor));
            write_text(
                root,
                &named(tick),
                (x, bottom + 6),
                small(),
                HPos::Center,
                VPos::Top,
            )?;
        }
        for (name, points) in drawn_last(series, |it| it.0) {
            let look = look(name);
            let places: Vec<_> = points.iter().map(|it| area.map_coordinate(it)).collect();
            let width = if look.ours { 3 } else { 1 };
            root.draw(&PathElement::new(
                places.clone(),
                look.colour.stroke_width(width),
            ))
            .map_err(failed)?;
            for place in places {
                mark(root, place, look)?;
            }
        }
        Ok(())
    }

    fn dots(
        &self,
        root: &Area<'_>,
        values: Range<f64>,
        rows: &[(String, Vec<(&'static str, f64)>)],
    ) -> io::Result<()> {
        let mut chart = ChartBuilder::on(root)
            .caption(&self.title, caption())
            .margin(14)
            .margin_right(LEGEND)
            .x_label_area_size(48)
            .y_label_area_size(250)
            .build_cartesian_2d(values.log_scale(), rows.len() as f64..0.0)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .bold_line_style(GRID)
            .light_line_style(WHITE)
            .axis_style(INK)
            .label_style(small())
            .axis_desc_style(plain())
            .x_desc(self.value)
            .disable_y_mesh()
            .y_labels(0)
            .x_labels(10)
            .x_label_formatter(&|value| (self.shown)(*value))
            .draw()
            .map_err(failed)?;
        let area = chart.plotting_area();
        let (left, right) = (area.get_pixel_range().0.start, area.get_pixel_range().0.end);
        let floor = area.get_x_range().start;
        for (index, (label, marks)) in rows.iter().enumerate() {
            let middle = index as f64 + 0.5;
            // Marks of a row lie one below the other, so that equal ones do not hide each other.
            let step = 0.7 / marks.len() as f64;
            for (turn, &(name, value)) in marks.iter().enumerate() {
                let y = middle + (turn as f64 - (marks.len() as f64 - 1.0) / 2.0) * step;
                mark(root, area.map_coordinate(&(value, y)), look(name))?;
            }
            let (_, y) = area.map_coordinate(&(floor, middle));
            write_text(
                root,
                label,
                (left - 8, y),
                small(),
                HPos::Right,
                VPos::Center,
            )?;
            if index > 0 {
                let (_, y) = area.map_coordinate(&(floor, index as f64));
                root.draw(&PathElement::new(vec![(left, y), (right, y)], GRID))
                    .map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// Ours on top of the others.
fn drawn_last<T>(all: &[T], name: impl Fn(&T) -> &'static str) -> Vec<&T> {
    let mut all: Vec<&T> = all.iter().collect();
    all.sort_by_key(|&it| look(name(it)).ours);
    all
}

fn legend(root: &Area<'_>, contenders: &[&'static str]) -> io::Result<()> {
    let x = (WIDTH - LEGEND + 22) as i32;
    for (index, name) in contenders.iter().enumerate() {
        let (look, y) = (look(name), 62 + 24 * index as i32);
        mark(root, (x, y), look)?;
        write_text(root, name, (x + 14, y), plain(), HPos::Left, VPos::Center)?;
    }
    Ok(())
}

fn mark(root: &Area<'_>, (x, y): (i32, i32), look: Look) -> io::Result<()> {
    let r = if look.ours { 6 } else { 4 };
    let style = ShapeStyle::from(&look.colour).filled();
    let corners = match look.shape {
        Shape::Disc => return root.draw(&Circle::new((x, y), r, style)).map_err(failed),
        Shape::Square => vec![
            (x - r, y - r),
            (x + r, y - r),
            (x + r, y + r),
            (x - r, y + r),
        ],
        Shape::Diamond => vec![
            (x, y - r - 1),
            (x + r + 1, y),
            (x, y + r + 1),
            (x - r - 1, y),
        ],
        Shape::Up => vec![(x, y - r), (x + r, y + r), (x - r, y + r)],
        Shape::Down => vec![(x, y + r), (x + r, y - r), (x - r, y - r)],
    };
    root.draw(&Polygon::new(corners, style)).map_err(failed)
}

fn caption() -> TextStyle<'static> {
    (FONT, 22).into_font().color(&INK)
}

fn plain() -> TextStyle<'static> {
    (FONT, 17).into_font().color(&INK)
}

fn small() -> TextStyle<'static> {
    (FONT, 16).into_font().color(&INK)
}

fn write_text(
    root: &Area<'_>,
    text: &str,
    at: (i32, i32),
    style: TextStyle<'static>,
    across: HPos,
    along: VPos,
) -> io::Result<()> {
    let style = style.pos(Pos::new(across, along));
    root.draw(&Text::new(text.to_owned(), at, style))
        .map_err(failed)
}
