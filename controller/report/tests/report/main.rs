//! The crate from outside: made-up and hostile sweeps in, summaries and figures out.

#[cfg(test)]
mod figures;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod made;
#[cfg(test)]
mod summary;
