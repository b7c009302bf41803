//! The one error type of this crate. It covers only what stops a report from being made; what is wrong
//! with a single trial's files is data ([`crate::Problem`]).

use std::io;
use std::path::PathBuf;

use plotters::backend::{BitMapBackend, DrawingBackend};
use plotters::drawing::DrawingAreaErrorKind;

/// The rasteriser's error.
pub(crate) type DrawError = DrawingAreaErrorKind<<BitMapBackend<'static> as DrawingBackend>::ErrorType>;

/// Why no report could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The sweep directory cannot be opened or listed.
    #[error("cannot list sweep directory {}", path.display())]
    ListSweep {
        /// The sweep directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The sweep directory holds more trial directories than a sweep can have.
    #[error("more than {limit} trial directories in {}", path.display())]
    TooManyTrials {
        /// The sweep directory.
        path: PathBuf,
        /// The most that are read.
        limit: usize,
    },
    /// An output directory cannot be made.
    #[error("cannot create directory {}", path.display())]
    CreateDirectory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// An output file cannot be written, synced or put in place.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file in its final place.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The summary cannot be encoded.
    #[error("cannot encode the summary as json")]
    EncodeJson {
        /// What the encoder said.
        source: serde_json::Error,
    },
    /// The embedded font is refused by the rasteriser.
    #[error("the embedded font cannot be read")]
    Font,
    /// A figure cannot be drawn.
    #[error("cannot draw {}", path.display())]
    Draw {
        /// The figure's file.
        path: PathBuf,
        /// What the rasteriser said.
        source: Box<DrawError>,
    },
    /// A figure cannot be encoded.
    #[error("cannot encode {} as png", path.display())]
    EncodePng {
        /// The figure's file.
        path: PathBuf,
        /// What the encoder said.
        source: png::EncodingError,
    },
}
