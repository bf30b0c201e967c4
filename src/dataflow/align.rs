//! Holds inputs until the barrier is on all of them.
//!
//! ```text
//!   channel 0   r r B ─ ─ ─ held        the barrier came first here; what follows it waits
//!   channel 1   r r r r B               when it is on every channel it is handed on, once
//! ```
//! A barrier can also be overtaken ([`Aligner::overtake`]): the actor has handled it before it came, and
//! what lay before it in each channel is recorded. It is left out then when it comes.

use super::exchange::Receiver;
use crate::stream::check::EpochOrder;
use crate::stream::watermark::WatermarkMerge;
use crate::stream::{Barrier, ChangeBatch, Epoch, Message, Watermark};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the inputs have.
pub enum Aligned {
    /// Rows on an input.
    Changes(usize, ChangeBatch),
    /// The combined watermark of an input moved.
    Watermark(usize, Watermark),
    /// The barrier is on all channels.
    Barrier(Arc<Barrier>),
    /// Nothing now.
    Empty,
}

struct ChannelInput {
    receiver: Receiver,
    /// The index of the input that the channel belongs to.
    input: usize,
    /// The channel's index within its input.
    member: usize,
    held: bool,
}

/// The inputs of an actor: several, each with a channel from every actor that feeds it.
pub struct Aligner {
    channels: Vec<ChannelInput>,
    /// By input, by watermarked column: what its channels promise.
    watermarks: Vec<Vec<(usize, WatermarkMerge)>>,
    members: Vec<usize>,

    barrier: Option<Arc<Barrier>>,
    /// When the barrier came on the first channel.
    since: Option<Instant>,
    /// How long the last one took from the first channel to the last.
    took: Duration,
    held: usize,
    /// The last barrier that was overtaken.
    overtaken: Epoch,
    next: usize,
    order: EpochOrder,
}

impl Aligner {
    /// For `inputs`: the channels of each.
    pub fn new(inputs: Vec<Vec<Receiver>>) -> Self {
        let members = inputs.iter().map(Vec::len).collect::<Vec<_>>();
        let channels = inputs
            .into_iter()
            .enumerate()
            .flat_map(|(input, receivers)| {
                receivers.into_iter().enumerate().map(move |(member, receiver)| ChannelInput {
                    receiver,
                    input,
                    member,
                    held: false,
                })
            })
            .collect();
        Self {
            channels,
            watermarks: vec![Vec::new(); members.len()],
            members,
            barrier: None,
            since: None,
            took: Duration::ZERO,
            held: 0,
            overtaken: Epoch::ZERO,
            next: 0,
            order: EpochOrder::default(),
        }
    }

    /// The next thing to do, taking the channels in turn.
    pub fn take(&mut self) -> Aligned {
        for _ in 0..self.channels.len() {
            let index = self.next;
            self.next = (self.next + 1) % self.channels.len();
            if self.channels[index].held {
                continue;
            }
            while let Some(message) = self.channels[index].receiver.try_receive() {
                if let Some(aligned) = self.receive(index, message) {
                    return aligned;
                }
                if self.channels[index].held {
                    break;
                }
            }
        }
        Aligned::Empty
    }

    /// The actor handles `barrier` without waiting for it, and for what lies before it. Must be the next
    /// barrier that would be handed on.
    pub fn overtake(&mut self, barrier: &Barrier) {
        self.order.check(barrier);
        self.overtaken = barrier.epoch;
        self.took = self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        self.barrier = None;
        self.held = 0;
        for channel in &mut self.channels {
            // Where it came already nothing lies before it.
            if !std::mem::take(&mut channel.held) {
                channel.receiver.record(barrier.epoch);
            }
        }
    }

    /// What lay before the overtaken barrier, by input, in order channel by channel; none until it was
    /// sent on every channel.
    pub fn take_records(&mut self) -> Option<Vec<Vec<ChangeBatch>>> {
        if !self.channels.iter().all(|channel| channel.receiver.is_recorded()) {
            return None;
        }
        let mut records = vec![Vec::new(); self.members.len()];
        for channel in &self.channels {
            records[channel.input].extend(channel.receiver.take_record());
        }
        Some(records)
    }

    /// How long the last barrier took from its first channel to its last.
    pub fn took(&self) -> Duration {
        self.took
    }

    fn receive(&mut self, index: usize, message: Message) -> Option<Aligned> {
        let channel = &mut self.channels[index];
        let (input, member) = (channel.input, channel.member);
        match message {
            Message::Changes(batch) => Some(Aligned::Changes(input, batch)),
            Message::Watermark(watermark) => {
                let time_us = self.merge_watermark(input, member, watermark)?;
                Some(Aligned::Watermark(input, Watermark { column: watermark.column, time_us }))
            }
            Message::Barrier(barrier) if barrier.epoch <= self.overtaken => None,
            Message::Barrier(barrier) => {
                channel.held = true;
                self.held += 1;
                if let Some(first) = &self.barrier {
                    assert_eq!(first.epoch, barrier.epoch, "channels carry the same barriers");
                }
                if self.held < self.channels.len() {
                    self.barrier = Some(barrier);
                    self.since.get_or_insert_with(Instant::now);
                    return None;
                }
                self.took = self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
                self.held = 0;
                self.barrier = None;
                self.channels.iter_mut().for_each(|c| c.held = false);
                self.order.check(&barrier);
                Some(Aligned::Barrier(barrier))
            }
        }
    }

    fn merge_watermark(&mut self, input: usize, member: usize, watermark: Watermark) -> Option<i64> {
        let columns = &mut self.watermarks[input];
        let position = columns.iter().position(|(column, _)| *column == watermark.column);
        let position = position.unwrap_or_else(|| {
            columns.push((watermark.column, WatermarkMerge::new(self.members[input])));
            columns.len() - 1
        });
        columns[position].1.advance(member, watermark.time_us)
    }
}
