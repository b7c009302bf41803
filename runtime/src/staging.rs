//! A mount namespace of the launcher's own, with a tmpfs for state and a reachable place for bind sources.
//!
//! A container whose ids are mapped cannot walk into `/root` or a private home, where a clone of this repository
//! may lie. Real root therefore binds each source below a directory that everyone may search, in a namespace
//! that vanishes with the launcher: no mount is ever visible on the host or left behind. An ordinary user's
//! container runs under the user's own id and needs none of this.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use oci_spec::runtime::Spec;
use rlox_host::CgroupHome;

use crate::cgroup::hierarchies::{CONTROLLERS, Hierarchies, mounted};
use crate::error::RuntimeError;
use crate::spec::{IdMap, is_bind};
use crate::{overlay, redirect};

/// Where one launcher keeps state, generated bundles and staged sources.
pub(crate) struct Staging {
    root: PathBuf,
    private: bool,
    staged: HashMap<PathBuf, PathBuf>,
    hierarchies: Rc<Hierarchies>,
}

/// Who puts containers into cgroups of v1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Joining {
    /// Nobody has to: they are born there.
    Born,
    /// libcontainer, where a container is to see the hierarchies.
    Moved,
}

impl Staging {
    /// Prepares `directory` (has to exist). Call it once, before any container.
    pub(crate) fn prepare(
        directory: &Path,
        home: &CgroupHome,
        joining: Joining,
    ) -> Result<Self, RuntimeError> {
        let mut hierarchies = Hierarchies::default();
        let private = nix::unistd::geteuid().is_root();
        if private {
            unshare(CloneFlags::CLONE_NEWNS)
                .map_err(|errno| system("unshare of the mount namespace", errno))?;
            mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
                .map_err(|errno| system("making mounts private", errno))?;
            let options = "mode=0711,size=16m,nr_inodes=16384";
            mount(
                Some("rlox"),
                directory,
                Some("tmpfs"),
                MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC,
                Some(options),
            )
            .map_err(|errno| system(format!("mounting a tmpfs on {}", directory.display()), errno))?;
            if *home == CgroupHome::V1 && joining == Joining::Born {
                hierarchies = Hierarchies::take_over(&directory.join("cgroup"))
                    .map_err(RuntimeError::system("taking the cgroup hierarchies over"))?;
            } else {
                hide_unneeded_hierarchies()?;
            }
        }
        let hierarchies = Rc::new(hierarchies);
        let staging = Self { root: directory.to_owned(), private, staged: HashMap::new(), hierarchies };
        for (name, mode) in [("state", 0o700), ("bundle", 0o711), ("stage", 0o711)] {
            let path = directory.join(name);
            DirBuilder::new()
                .recursive(true)
                .mode(mode)
                .create(&path)
                .map_err(RuntimeError::system(format!("creating {}", path.display())))?;
        }
        Ok(staging)
    }

    /// Where cgroup hierarchies are.
    pub(crate) fn hierarchies(&self) -> &Rc<Hierarchies> {
        &self.hierarchies
    }

    /// libcontainer's state root.
    pub(crate) fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    /// Writes the spec as a bundle of its own and returns that bundle's directory.
    pub(crate) fn write_bundle(&mut self, id: &str, spec: Spec) -> Result<PathBuf, RuntimeError> {
        redirect::refuse(&spec)?;
        let mut spec = self.stage_sources(spec)?;
        if let (true, Some(linux)) = (self.hierarchies.are_joined(), spec.linux_mut()) {
            // The one place that libcontainer finds, where every process is already.
            linux.set_cgroups_path(Some("/".into())).set_resources(None);
        }
        let directory = self.root.join("bundle").join(id);
        fs::create_dir(&directory)
            .map_err(RuntimeError::system(format!("creating {}", directory.display())))?;
        let file = directory.join("config.json");
        let text =
            serde_json::to_vec(&spec).map_err(|error| RuntimeError::Request { reason: error.to_string() })?;
        fs::write(&file, text).map_err(RuntimeError::system(format!("writing {}", file.display())))?;
        Ok(directory)
    }

    /// Puts a writable layer over the root file system where ids are mapped: mount points of devices have to be
    /// made and their hooks write into it, as a user who owns nothing of the bundle. An ordinary user owns it.
    pub(crate) fn write_over_root(&self, mut spec: Spec, ids: IdMap) -> Result<Spec, RuntimeError> {
        if let (true, IdMap::Range { first }, Some(mut root)) = (self.private, ids, spec.root().clone()) {
            root.set_path(overlay::mount_over(root.path(), &self.root.join("overlay"), first)?);
            spec.set_root(Some(root));
        }
        Ok(spec)
    }

    /// Removes what [`Self::write_bundle`] and libcontainer wrote for this container.
    pub(crate) fn remove_bundle(&self, id: &str) {
        for path in [self.root.join("bundle").join(id), self.root.join("state").join(id)] {
            match fs::remove_dir_all(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "cannot remove container state")
                }
            }
        }
    }

    fn stage_sources(&mut self, mut spec: Spec) -> Result<Spec, RuntimeError> {
        if !self.private {
            return Ok(spec);
        }
        if let Some(mut root) = spec.root().clone() {
            root.set_path(self.stage(root.path())?);
            spec.set_root(Some(root));
        }
        let mut mounts = spec.mounts().clone().unwrap_or_default();
        for each in &mut mounts {
            if let Some(source) = each.source().clone().filter(|_| is_bind(each)) {
                each.set_source(Some(self.stage(&source)?));
            }
        }
        spec.set_mounts(Some(mounts));
        Ok(spec)
    }

    /// Binds a host path below the stage once and returns where.
    fn stage(&mut self, source: &Path) -> Result<PathBuf, RuntimeError> {
        let action = |what: &str| format!("{what} {} for a bind mount", source.display());
        let source = fs::canonicalize(source).map_err(RuntimeError::system(action("resolving")))?;
        if let Some(target) = self.staged.get(&source) {
            return Ok(target.clone());
        }
        let metadata = fs::metadata(&source).map_err(RuntimeError::system(action("reading")))?;
        let target = self.root.join("stage").join(self.staged.len().to_string());
        let made = if metadata.is_dir() {
            DirBuilder::new().mode(0o711).create(&target)
        } else {
            File::create_new(&target).map(drop)
        };
        made.map_err(RuntimeError::system(format!("creating {}", target.display())))?;
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        mount(Some(&source), &target, None::<&str>, flags, None::<&str>)
            .map_err(|errno| system(action("staging"), errno))?;
        self.staged.insert(source, target.clone());
        Ok(target)
    }
}

/// Unmounts the other v1 hierarchies in our own namespace. libcontainer joins every hierarchy that it sees, and each
/// join waits until all forks and exits in flight on the whole machine are through: beside a fork bomb of large
/// processes, joining twelve instead of five was seen to take half a minute.
fn hide_unneeded_hierarchies() -> Result<(), RuntimeError> {
    let path = Path::new("/proc/self/mountinfo");
    let mounts = rlox_host::read_bounded(path).map_err(RuntimeError::system("reading mountinfo"))?;
    for mount_point in mounts.lines().filter_map(unneeded_hierarchy) {
        umount2(Path::new(mount_point), MntFlags::MNT_DETACH)
            .map_err(|errno| system(format!("hiding {mount_point}"), errno))?;
    }
    Ok(())
}

/// The mount point of a line of mountinfo that is a v1 hierarchy without a controller that is kept.
fn unneeded_hierarchy(line: &str) -> Option<&str> {
    let (place, kind, options) = mounted(line)?;
    let kept = options.split(',').any(|option| CONTROLLERS.contains(&option));
    (kind == "cgroup" && !kept).then_some(place)
}

fn system(action: impl Into<String>, errno: nix::Error) -> RuntimeError {
    RuntimeError::System { action: action.into(), source: errno.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hierarchies_without_a_needed_controller_are_hidden() {
        let line =
            |options: &str| format!("30 29 0:27 / /sys/fs/cgroup/x rw,relatime - cgroup cgroup rw,{options}");
        assert_eq!(unneeded_hierarchy(&line("freezer")), Some("/sys/fs/cgroup/x"));
        assert_eq!(unneeded_hierarchy(&line("xattr,name=systemd")), Some("/sys/fs/cgroup/x"));
        assert_eq!(unneeded_hierarchy(&line("cpu,cpuacct")), None);
        assert_eq!(unneeded_hierarchy(&line("memory")), None);
        assert_eq!(unneeded_hierarchy("30 29 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"), None);
        assert_eq!(unneeded_hierarchy("30 29 0:27 / / rw - ext4 /dev/vda rw"), None);
    }
}
