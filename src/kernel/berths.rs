//! Berths: where a thread's cache keeps single blocks of the classes that are too large for magazines.

#![allow(unsafe_code)]

use core::ptr;

use super::backing::Backing;
use super::block::Block;
use super::cache::{Cache, Shelf};
use super::ledger::Charged;
use super::magazine::Magazine;
use super::tuning::BERTHS_PER_CLASS;

/// When the berths of a class were last seen to have served.
#[derive(Clone, Copy)]
pub(super) struct Look {
    /// Takes of the class when who ages the pool last looked.
    aged: u64,
    /// The same for who makes room for a birth.
    takes: u64,
    /// When they were first seen to be as many, by the pool's clock.
    since: u64,
}

impl Look {
    pub(super) const NEVER: Self = Self {
        aged: 0,
        takes: 0,
        since: 0,
    };
}

/// What one berth more takes.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BerthCost {
    /// Whether it is the first of its class, which needs a magazine.
    pub first: bool,
    /// What is charged for it.
    pub charged: Charged,
}

/// What a berth leaves behind.
#[must_use]
pub struct Unberthed<S: Backing> {
    /// The block that was in; null if none was.
    pub block: *const Block<S>,
    /// The magazine of the class's last berth, empty; null if it has others.
    pub magazine: *const Magazine<S>,
    /// What was charged for it.
    pub charged: Charged,
}

impl<S: Backing> Cache<S> {
    /// Owner: it took a block of `class` elsewhere, and may have a berth for the like when it gives
    /// one. Who only gives has none: what it gives is for others.
    pub fn credit(&self, class: usize) {
        // SAFETY: the owner is inside.
        self.inside(|| unsafe { self.add_credit(class) });
    }

    /// # Safety
    /// As [`empty`](Self::empty).
    unsafe fn add_credit(&self, class: usize) {
        self.credits.with_mut(|credits| {
            // SAFETY: the caller's promise.
            let credits = unsafe { &mut *credits };
            credits[class] = credits[class].saturating_add(1).min(BERTHS_PER_CLASS as u8);
        });
    }

    /// Owner: what one berth more for `class` takes, of `charge` bytes, where the cache may have `most`
    /// in all. Half of the budget is for berths, and what is beyond counts as resting. `None` if the
    /// class or the cache has enough, without a [`credit`](Self::credit), or if the lock was refused.
    pub fn berth_cost(
        &self,
        class: usize,
        charge: usize,
        most: u32,
        budget: usize,
    ) -> Option<BerthCost> {
        let look = || {
            // SAFETY: the owner is inside.
            let (room, charged) = unsafe { self.room_and_charged(class) };
            // SAFETY: as above.
            let credit = self.credits.with(|credits| unsafe { (&*credits)[class] });
            (room, charged, credit)
        };
        let (room, charged, credit) = self.inside(look)?;
        if credit == 0 || room >= BERTHS_PER_CLASS || self.berthed.get() >= u64::from(most) {
            return None;
        }
        let left = (budget / 2).saturating_sub(charged.berths);
        let within = charge.min(left.min(budget.saturating_sub(charged.within_budget())));
        Some(BerthCost {
            first: room == 0,
            charged: Charged {
                berths: within,
                beyond: charge - within,
                ..Charged::NOTHING
            },
        })
    }

    /// Owner: one berth more for `class`, whose cost the caller has charged, when the pool's clock shows
    /// `now`. `magazine` is null if it is not the first. `false` if the lock was refused, or the
    /// class's berths have changed in the meantime: everything is the caller's still.
    ///
    /// # Safety
    /// The magazine, if any, is the caller's, and empty.
    pub unsafe fn add_berth(
        &self,
        class: usize,
        cost: BerthCost,
        magazine: *const Magazine<S>,
        now: u64,
    ) -> bool {
        let add = |shelf: *mut Shelf<S>| {
            // SAFETY: the owner is inside: nobody else touches the shelf.
            let shelf = unsafe { &mut *shelf };
            if shelf.loaded.is_null() != cost.first {
                return false;
            }
            if cost.first {
                shelf.loaded = magazine;
            }
            shelf.room += 1;
            self.berthed.add(1);
            self.charged.with_mut(|charged| {
                // SAFETY: the owner is inside.
                let charged = unsafe { &mut *charged };
                charged.berths += cost.charged.berths;
                charged.beyond += cost.charged.beyond;
            });
            self.credits.with_mut(|credits| {
                // SAFETY: the owner is inside.
                let credits = unsafe { &mut *credits };
                credits[class] = credits[class].saturating_sub(1);
            });
            let takes = self.places[class].takes.get();
            self.looks.with_mut(|looks| {
                // SAFETY: the owner is inside.
                let looks = unsafe { &mut *looks };
                looks[class] = Look {
                    // To who ages the pool a new berth counts as used at the first look.
                    aged: takes.wrapping_sub(1),
                    takes,
                    since: now,
                };
            });
            true
        };
        self.inside(|| self.places[class].shelf.with_mut(add))
            .unwrap_or(false)
    }

    /// Takes one berth of `class` away, of `charge` bytes: a vacant one if there is one, else one
    /// with its block, unless only `vacant` ones are wanted. `None` if there is none.
    ///
    /// # Safety
    /// As [`empty`](Self::empty); the class is one without magazines.
    pub unsafe fn unberth(
        &self,
        class: usize,
        charge: usize,
        vacant: bool,
    ) -> Option<Unberthed<S>> {
        let (block, magazine) = self.places[class].shelf.with_mut(|shelf| {
            // SAFETY: the caller's promise.
            let shelf = unsafe { &mut *shelf };
            if shelf.room == 0 || vacant && shelf.room == shelf.len {
                return None;
            }
            // SAFETY: with room above 0 there is a loaded magazine, and it is the shelf's.
            let loaded = unsafe { &*shelf.loaded };
            let mut block = ptr::null();
            if shelf.len == shelf.room {
                shelf.len -= 1;
                // SAFETY: the slot is below the length that was.
                block = unsafe { loaded.round(shelf.len) };
            }
            if block.is_null() {
                // The block that was in it is out, and may come back.
                // SAFETY: the caller's promise.
                unsafe { self.add_credit(class) };
            }
            shelf.room -= 1;
            if shelf.room > 0 {
                return Some((block, ptr::null()));
            }
            // SAFETY: the shelf's own magazine, in which nothing is left.
            unsafe { loaded.set_len(0) };
            Some((block, core::mem::replace(&mut shelf.loaded, ptr::null())))
        })?;
        self.berthed.sub(1);
        self.charged.with_mut(|charged| {
            // SAFETY: the caller's promise.
            let charged = unsafe { &mut *charged };
            let beyond = charge.min(charged.beyond);
            let berths = charge - beyond;
            charged.beyond -= beyond;
            charged.berths -= berths;
            Some(Unberthed {
                block,
                magazine,
                charged: Charged {
                    berths,
                    beyond,
                    ..Charged::NOTHING
                },
            })
        })
    }

    /// Whether no block of `class` was taken from this cache since the last call.
    ///
    /// # Safety
    /// As [`empty`](Self::empty).
    pub unsafe fn is_unused(&self, class: usize) -> bool {
        let takes = self.places[class].takes.get();
        self.looks.with_mut(|looks| {
            // SAFETY: the caller's promise.
            let looks = unsafe { &mut *looks };
            core::mem::replace(&mut looks[class].aged, takes) == takes
        })
    }

    /// How long, by the pool's clock, which shows `now`, the berths of `class` have served no take: a take
    /// counts as of the first look that sees it. `None` if there is no berth.
    ///
    /// # Safety
    /// As [`empty`](Self::empty).
    pub unsafe fn idle(&self, class: usize, now: u64) -> Option<u64> {
        // SAFETY: the caller's promise.
        let (room, _) = unsafe { self.room_and_charged(class) };
        let takes = self.places[class].takes.get();
        let idle = self.looks.with_mut(|looks| {
            // SAFETY: the caller's promise.
            let look = unsafe { &mut (&mut *looks)[class] };
            if look.takes != takes {
                (look.takes, look.since) = (takes, now);
            }
            now.saturating_sub(look.since)
        });
        (room > 0).then_some(idle)
    }

    /// Whether there are berths now, or were shortly before.
    pub fn has_berths(&self) -> bool {
        self.berthed.get() > 0
    }
}
