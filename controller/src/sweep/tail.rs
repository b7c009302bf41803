//! Follows a trial's `metrics.jsonl` while it grows: each step once, as far as the numbers run on.
//!
//! The trainer may write anything there. What is read at once is bounded, and there are never more steps than the
//! trial may have.

use std::path::PathBuf;

use rlox_report::MetricsRow;

use super::files::read_untrusted;

/// Most that is read at once; a line beyond it is no step.
const CHUNK: u64 = 256 << 10;

/// Most steps that are handed over at once.
pub(super) const STEPS: usize = 64;

/// Where the reading is.
#[derive(Debug)]
pub(super) struct Tail {
    path: PathBuf,
    offset: u64,
    last: u64,
    most: u64,
}

impl Tail {
    pub(super) fn new(path: PathBuf, max_steps: u64) -> Self {
        Self { path, offset: 0, last: 0, most: max_steps }
    }

    /// The number of the last step that was handed over.
    pub(super) fn steps(&self) -> u64 {
        self.last
    }

    /// Hands over the next steps that ended since, all together, and returns how many. Steps that are not taken come
    /// again.
    pub(super) fn look<E>(&mut self, take: impl FnOnce(&[MetricsRow]) -> Result<(), E>) -> Result<usize, E> {
        let Ok(bytes) = read_untrusted(&self.path, self.offset, CHUNK) else { return Ok(0) };
        let (mut begin, mut last, mut rows) = (0, self.last, Vec::new());
        while rows.len() < STEPS
            && let Some(length) = bytes[begin..].iter().position(|byte| *byte == b'\n')
        {
            let line = &bytes[begin..begin + length];
            if let Some(row) =
                MetricsRow::parse(line).filter(|row| row.step == last + 1 && row.step <= self.most)
            {
                last = row.step;
                rows.push(row);
            }
            begin += length + 1;
        }
        if !rows.is_empty() {
            take(&rows)?;
        }
        self.last = last;
        self.offset += if begin == 0 && bytes.len() as u64 == CHUNK { CHUNK } else { begin as u64 };
        Ok(rows.len())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn each_step_comes_once_and_half_a_line_waits() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metrics.jsonl");
        let mut tail = Tail::new(path.clone(), 3);
        let mut steps = Vec::new();
        let mut look = |tail: &mut Tail| {
            tail.look(|rows| {
                steps.extend(rows.iter().map(|row| row.step));
                Ok::<_, ()>(())
            })
            .unwrap();
            steps.clone()
        };
        assert!(look(&mut tail).is_empty());
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(b"{\"step\": 1}\nno step\n{\"step\": 1}\n{\"st").unwrap();
        assert_eq!(look(&mut tail), [1]);
        file.write_all(b"ep\": 2}\n{\"step\": 9}\n{\"step\": 3}\n{\"step\": 4}\n").unwrap();
        assert_eq!(look(&mut tail), [1, 2, 3]);
        assert_eq!(look(&mut tail), [1, 2, 3]);
    }

    #[test]
    fn steps_that_were_not_taken_come_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metrics.jsonl");
        std::fs::write(&path, "{\"step\": 1}\n{\"step\": 2}\n").unwrap();
        let mut tail = Tail::new(path, 5);
        assert!(tail.look(|_| Err(())).is_err());
        assert_eq!(tail.steps(), 0);
        assert_eq!(tail.look(|_| Ok::<_, ()>(())), Ok(2));
        assert_eq!(tail.steps(), 2);
    }

    #[test]
    fn many_steps_at_once_come_in_pieces() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metrics.jsonl");
        let text: String = (1..=STEPS + 3).map(|step| format!("{{\"step\": {step}}}\n")).collect();
        std::fs::write(&path, text).unwrap();
        let mut tail = Tail::new(path, 1000);
        let mut look = || tail.look(|_| Ok::<_, ()>(())).unwrap();
        assert_eq!([look(), look(), look()], [STEPS, 3, 0]);
    }

    #[test]
    fn an_endless_line_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("metrics.jsonl");
        let mut text = "x".repeat(usize::try_from(CHUNK).unwrap() * 2 + 10);
        text += "\n{\"step\": 1}\n";
        std::fs::write(&path, text).unwrap();
        let mut tail = Tail::new(path, 5);
        for _ in 0..4 {
            tail.look(|_| Ok::<_, ()>(())).unwrap();
        }
        assert_eq!(tail.steps(), 1);
    }
}
