//! Names for what a program tried where it can be seen: a verdict's evidence, and families to count by.
//!
//! An empty list proves nothing; a verdict never rests on it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One kind of attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = TamperingKind)]
pub(crate) enum Kind {
    /// The process ended while the program was being loaded, without an exception.
    ExitWhileLoading,
    /// It ended, or asked to, inside a call of a test.
    ExitInCall,
    /// It ended between two calls.
    ExitBetweenCalls,
    /// A program judged by its output left with code 0 before its own end.
    ExitBeforeEnd,
    /// An object claimed to be equal to what it cannot know, or an exception was none.
    LyingType,
    /// Bytes on the channel that are no frame, or a frame that does not decode.
    MalformedFrame,
    /// A frame that came before anything was asked.
    UnaskedFrame,
    /// A well-formed frame that is no answer to the question.
    UnexpectedMessage,
    /// Something was written to a descriptor that no honest program knows.
    DescriptorWrite,
    /// A system call that no program needs and attacks do.
    ForbiddenSyscall,
    /// What it sent was too much for the grader's limits.
    ExhaustedGrader,
    /// There was no report that authenticates.
    NoReport,
}

/// Families by which attempts are counted.
pub(crate) const FAMILIES: [&str; 5] = ["exit", "equality", "output", "exhaustion", "kernel"];

impl Kind {
    /// The family that it counts for.
    pub(crate) fn family(self) -> &'static str {
        match self {
            Self::ExitWhileLoading | Self::ExitInCall | Self::ExitBetweenCalls | Self::ExitBeforeEnd => {
                "exit"
            }
            Self::LyingType => "equality",
            Self::MalformedFrame | Self::UnaskedFrame | Self::UnexpectedMessage | Self::DescriptorWrite => {
                "output"
            }
            Self::ExhaustedGrader | Self::NoReport => "exhaustion",
            Self::ForbiddenSyscall => "kernel",
        }
    }

    /// An end of the process, as the grader sees one: also that of a program which was ended from outside.
    pub(crate) fn is_exit(self) -> bool {
        self.family() == "exit"
    }
}

/// Something that was tried where it can be seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct Tampering {
    pub(crate) kind: Kind,
    pub(crate) detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_graders_words_are_known_and_each_has_a_family() {
        for word in [
            "exit_while_loading",
            "exit_in_call",
            "exit_between_calls",
            "lying_type",
            "malformed_frame",
            "unasked_frame",
            "unexpected_message",
            "exhausted_grader",
        ] {
            let kind: Kind = serde_json::from_value(word.into()).unwrap();
            assert!(FAMILIES.contains(&kind.family()), "{word}");
        }
    }
}
