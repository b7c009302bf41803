//! The runtime from outside: the real `rlox-runtime run` with the real bundle `snippet`.
//!
//! Programs that misbehave run only inside those containers. What a host cannot give is skipped aloud, and fails
//! where `RLOX_FORBID_SKIPS=1` is set.

#[cfg(test)]
mod containerd;
#[cfg(test)]
mod devices;
#[cfg(test)]
mod dist;
#[cfg(test)]
mod docker;
#[cfg(test)]
mod doctor;
#[cfg(test)]
mod engine;
#[cfg(test)]
mod exit_codes;
#[cfg(test)]
mod honest;
#[cfg(test)]
mod isolation;
#[cfg(test)]
mod landlock;
#[cfg(test)]
mod launcher;
#[cfg(test)]
mod leftovers;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod oci;
#[cfg(test)]
mod podman;
#[cfg(test)]
mod promises;
#[cfg(test)]
mod random_bundles;
#[cfg(test)]
mod redirections;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod seccomp;
#[cfg(test)]
mod support;
#[cfg(test)]
mod vm;
