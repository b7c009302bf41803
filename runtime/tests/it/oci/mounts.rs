//! The file system that a container sees.

use std::fs;
use std::process::Command;

use serde_json::json;

use super::support::world;

/// Options and propagation of a mount point, from inside.
const MOUNTS: &str = "import json\n\
    found = {}\n\
    for line in open('/proc/self/mountinfo'):\n\
    \x20   left, right = line.rstrip().split(' - ')\n\
    \x20   fields, kind = left.split(), right.split()\n\
    \x20   found[fields[4]] = [fields[5].split(','), kind[0], kind[2].split(','), fields[6:]]\n";

#[test]
fn options_become_flags_and_data() {
    let Some(world) = world() else { return };
    let code = format!("{MOUNTS}print(json.dumps(found['/mnt']))");
    let rootfs = world.own_rootfs();
    let seen = world.seen(&code, |config| {
        config["root"]["path"] = json!(rootfs);
        config["mounts"].as_array_mut().unwrap().push(json!({
            "destination": "/mnt", "type": "tmpfs", "source": "tmpfs",
            "options": ["nosuid", "nodev", "noexec", "ro", "size=64k", "mode=700"]
        }));
    });
    let flags = seen[0].as_array().unwrap();
    for flag in ["nosuid", "nodev", "noexec", "ro"] {
        assert!(flags.contains(&json!(flag)), "{flag}: {seen}");
    }
    assert_eq!(seen[1], "tmpfs");
    let data = seen[2].as_array().unwrap();
    assert!(data.contains(&json!("size=64k")) && data.contains(&json!("mode=700")), "{seen}");
}

#[test]
fn bind_mounts_are_writable_or_not_as_asked() {
    let Some(world) = world() else { return };
    let rootfs = world.own_rootfs();
    let (shared, file) = (world.path("shared"), world.path("one-file"));
    fs::create_dir_all(shared.join("inner")).unwrap();
    fs::write(&file, "content").unwrap();
    let seen = world.seen(
        "import errno, json\n\
         def write(path):\n\
         \x20   try: open(path, 'w').write('x'); return 'written'\n\
         \x20   except OSError as error: return errno.errorcode[error.errno]\n\
         print(json.dumps([write('/rw/new'), write('/ro/new'), write('/ro/inner/new'), open('/one').read()]))",
        |config| {
            config["root"]["path"] = json!(rootfs);
            let mounts = config["mounts"].as_array_mut().unwrap();
            mounts.push(json!({"destination": "/rw", "source": shared, "options": ["rbind", "rw"]}));
            mounts.push(json!({"destination": "/ro", "type": "none", "source": shared, "options": ["rbind", "ro"]}));
            mounts.push(json!({"destination": "/one", "type": "bind", "source": file, "options": ["bind", "ro"]}));
        },
    );
    assert_eq!(seen, json!(["written", "EROFS", "EROFS", "content"]));
    assert!(shared.join("new").exists());
}

#[test]
fn a_mount_without_a_source_is_one_of_its_type() {
    let Some(world) = world() else { return };
    let rootfs = world.own_rootfs();
    let seen = world.seen(&format!("{MOUNTS}print(json.dumps(found['/extra'][1]))"), |config| {
        config["root"]["path"] = json!(rootfs);
        config["mounts"].as_array_mut().unwrap().push(json!({"destination": "/extra", "type": "tmpfs"}));
    });
    assert_eq!(seen, "tmpfs");
}

#[test]
fn a_tmpfs_can_start_with_what_it_hides() {
    let Some(world) = world() else { return };
    let seen = world.seen(
        "import json, os\n\
         open('/data/new', 'w').write('x')\n\
         print(json.dumps([open('/data/file').read(), sorted(os.listdir('/data')), os.listdir('/bare')]))",
        |config| {
            let rootfs = world.own_rootfs();
            fs::create_dir(rootfs.join("bare")).unwrap();
            fs::write(rootfs.join("bare/hidden"), "").unwrap();
            config["root"]["path"] = json!(rootfs);
            let mounts = config["mounts"].as_array_mut().unwrap();
            mounts.push(
                json!({"destination": "/data", "type": "tmpfs", "source": "tmpfs", "options": ["tmpcopyup"]}),
            );
            mounts.push(json!({"destination": "/bare", "type": "tmpfs", "source": "tmpfs"}));
        },
    );
    assert_eq!(seen, json!(["from the image\n", ["file", "inner", "new"], []]));
}

#[test]
fn masked_paths_are_empty_and_read_only_paths_refuse_writes() {
    let Some(world) = world() else { return };
    let rootfs = world.own_rootfs();
    let seen = world.seen(
        "import errno, json, os\n\
         def write(path):\n\
         \x20   try: open(path, 'w').write('x'); return 'written'\n\
         \x20   except OSError as error: return errno.errorcode[error.errno]\n\
         print(json.dumps([open('/data/file').read(), os.listdir('/data/inner'), write('/data/fixed/new'), write('/data/new'), write('/proc/sys/kernel/hostname')]))",
        |config| {
            fs::create_dir(rootfs.join("data/fixed")).unwrap();
            fs::write(rootfs.join("data/inner/secret"), "").unwrap();
            config["root"] = json!({"path": rootfs});
            config["linux"]["maskedPaths"] = json!(["/data/file", "/data/inner", "/no/such/path"]);
            config["linux"]["readonlyPaths"] = json!(["/data/fixed", "/proc/sys", "/no/such/path"]);
        },
    );
    assert_eq!(seen, json!(["", [], "EROFS", "written", "EROFS"]));
}

#[test]
fn the_root_is_read_only_where_asked_for() {
    let Some(world) = world() else { return };
    let code = "import errno\n\
        try: open('/new', 'w'); print('\"written\"')\n\
        except OSError as error: print('\"' + errno.errorcode[error.errno] + '\"')";
    assert_eq!(world.seen(code, |_| {}), "EROFS");
    let rootfs = world.own_rootfs();
    assert_eq!(world.seen(code, |config| config["root"] = json!({"path": rootfs})), "written");
}

#[test]
fn every_mode_of_propagation_is_known() {
    let Some(world) = world() else { return };
    let code = format!("{MOUNTS}print(json.dumps(found['/'][3]))");
    for (mode, word) in [
        ("private", None),
        ("rprivate", None),
        ("slave", None),
        ("rslave", None),
        ("shared", Some("shared:")),
        ("rshared", Some("shared:")),
        ("unbindable", Some("unbindable")),
        ("runbindable", Some("unbindable")),
    ] {
        let seen = world.seen(&code, |config| config["linux"]["rootfsPropagation"] = json!(mode));
        let tags: Vec<_> = seen.as_array().unwrap().iter().map(|tag| tag.as_str().unwrap()).collect();
        match word {
            Some(word) => assert!(tags.iter().any(|tag| tag.starts_with(word)), "{mode}: {tags:?}"),
            None => assert!(!tags.iter().any(|tag| tag.starts_with("shared")), "{mode}: {tags:?}"),
        }
    }
    world.configure(|config| config["linux"]["rootfsPropagation"] = json!("sideways"));
    let bundle = world.bundle();
    assert!(world.refused(&["create", "--bundle", bundle.to_str().unwrap(), "x"]).contains("sideways"));
}

#[test]
fn mounts_of_a_container_are_not_seen_on_the_host() {
    let Some(world) = world() else { return };
    let rootfs = world.own_rootfs();
    world.configure(|config| config["root"]["path"] = json!(rootfs));
    let _container = world.running();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(rootfs.to_str().unwrap()), "{mounts}");
}

#[test]
fn a_root_that_cannot_be_pivoted_to_works_without() {
    let Some(world) = world() else { return };
    world.python("print(1)", |_| {});
    let container = world.id();
    let bundle = world.bundle();
    let output = world.output(&["run", "--no-pivot", "--bundle", bundle.to_str().unwrap(), &container.id]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1", "{output:?}");
}

#[test]
fn symlinks_in_the_image_do_not_lead_mounts_out_of_it() {
    let Some(world) = world() else { return };
    let rootfs = world.own_rootfs();
    let outside = world.path("outside");
    fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, rootfs.join("link")).unwrap();
    world.python("open('/link/marker', 'w').write('x'); print(1)", |config| {
        config["root"]["path"] = json!(rootfs);
        config["mounts"]
            .as_array_mut()
            .unwrap()
            .push(json!({"destination": "/link", "type": "tmpfs", "source": "x"}));
    });
    world.run();
    let listed = Command::new("ls").arg(&outside).output().unwrap().stdout;
    assert!(listed.is_empty(), "{}", String::from_utf8_lossy(&listed));
}
