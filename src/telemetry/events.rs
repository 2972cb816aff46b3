//! Births, trims and refusals as events of `tracing`, with the target `ndpool`. They come from slow
//! paths, on the thread where they arise; a subscriber may run inside of a trim, and must not use
//! another pool there.

use crate::class;
use crate::kernel::backing::Note;
use crate::timeline::EventKind;

/// Tells of a birth (level trace) or a trim (debug). `class_bytes` is 0 for what has no class.
pub(crate) fn note(note: Note) {
    match note {
        Note::Birth { class, bytes } => {
            let class_bytes = class::TABLE.get(usize::from(class)).copied().unwrap_or(0);
            tracing::trace!(target: "ndpool", bytes, class_bytes, "birth");
        }
        Note::Trim { bytes } => tracing::debug!(target: "ndpool", bytes, "trim"),
        Note::Death { .. } | Note::Rest { .. } | Note::Wake { .. } | Note::Evict { .. } => {}
    }
}

/// Tells of a request that was turned down (level warn).
pub(crate) fn turned_down(kind: EventKind, requested: usize) {
    match kind {
        EventKind::Refusal { limit } => {
            tracing::warn!(target: "ndpool", requested, limit, "refusal");
        }
        _ => tracing::warn!(target: "ndpool", requested, "source failure"),
    }
}
