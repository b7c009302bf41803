//! What honest programs do and a filter breaks easily: threads, processes, event loops, temporary and mapped files.

use serde_json::json as value;

use crate::support::{json, printed, ready};

#[test]
fn threads_and_subprocesses() {
    if !ready() {
        return;
    }
    let seen = json(
        "import concurrent.futures, json, queue, subprocess, threading\n\
         q = queue.Queue()\n\
         threads = [threading.Thread(target=q.put, args=(n,), name=f'worker {n}') for n in range(8)]\n\
         [t.start() for t in threads]; [t.join() for t in threads]\n\
         with concurrent.futures.ThreadPoolExecutor(4) as pool: squares = list(pool.map(lambda n: n * n, range(5)))\n\
         echo = subprocess.run(['/bin/sh', '-c', 'read x; echo $x $x; exit 3'], input='hi\\n', capture_output=True, text=True)\n\
         late = subprocess.Popen(['/bin/sleep', '30']); late.terminate()\n\
         print(json.dumps([sorted(q.queue), squares, echo.stdout, echo.returncode, late.wait()]))",
    );
    assert_eq!(seen, value!([[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 4, 9, 16], "hi hi\n", 3, -15]));
}

/// Methods other than fork import the program again, so it has to be a file.
const POOLS: &str = r#"
import multiprocessing as mp, multiprocessing.shared_memory as shm, sys
def double(n): return 2 * n
def fill(name):
    block = shm.SharedMemory(name)
    block.buf[0] = 7
    block.close()
if __name__ == "__main__":
    context = mp.get_context(sys.argv[1])
    with context.Pool(2) as pool:
        print(sum(pool.map(double, range(10))))
    block = shm.SharedMemory(create=True, size=64)
    process = context.Process(target=fill, args=(block.name,))
    process.start()
    process.join()
    print(block.buf[0])
    block.close()
    block.unlink()
"#;

#[test]
fn multiprocessing_by_every_start_method_and_shared_memory() {
    if !ready() {
        return;
    }
    let seen = json(&format!(
        "import json, pathlib, subprocess, sys\n\
         pathlib.Path('/tmp/pools.py').write_text({POOLS:?})\n\
         run = lambda method: subprocess.run([sys.executable, '-S', '/tmp/pools.py', method], capture_output=True, text=True)\n\
         runs = {{m: run(m) for m in ('fork', 'spawn', 'forkserver')}}\n\
         print(json.dumps({{m: r.stdout.split() if r.returncode == 0 else r.stderr[-500:] for m, r in runs.items()}}))"
    ));
    for method in ["fork", "spawn", "forkserver"] {
        assert_eq!(seen[method], value!(["90", "7"]), "{method}: {seen}");
    }
}

#[test]
fn event_loops_with_subprocesses_pipes_and_sockets() {
    if !ready() {
        return;
    }
    let seen = json(
        "import asyncio, json\n\
         async def serve(reader, writer):\n\
         \x20   writer.write((await reader.readline()).upper()); await writer.drain(); writer.close()\n\
         async def main():\n\
         \x20   server = await asyncio.start_unix_server(serve, '/tmp/socket')\n\
         \x20   reader, writer = await asyncio.open_unix_connection('/tmp/socket')\n\
         \x20   writer.write(b'hello\\n')\n\
         \x20   answer = (await reader.readline()).decode(); writer.close(); server.close()\n\
         \x20   p = await asyncio.create_subprocess_exec('/bin/echo', 'out', stdout=asyncio.subprocess.PIPE)\n\
         \x20   out = (await p.communicate())[0].decode()\n\
         \x20   pooled = await asyncio.get_running_loop().run_in_executor(None, sum, range(4))\n\
         \x20   try: await asyncio.wait_for(asyncio.sleep(30), 0.01); timed = 'no'\n\
         \x20   except asyncio.TimeoutError: timed = 'timed out'\n\
         \x20   return [answer, out, pooled, timed]\n\
         print(json.dumps(asyncio.run(main())))",
    );
    assert_eq!(seen, value!(["HELLO\n", "out\n", 6, "timed out"]));
}

#[test]
fn temporary_mapped_locked_and_renamed_files() {
    if !ready() {
        return;
    }
    let seen = json(
        "import fcntl, json, mmap, os, shutil, tempfile\n\
         with tempfile.TemporaryDirectory() as d:\n\
         \x20   os.makedirs(d + '/a/b'); os.makedirs(d + '/c')\n\
         \x20   with open(d + '/a/f', 'w+b') as f:\n\
         \x20       f.write(b'x' * 8192); f.flush(); fcntl.flock(f, fcntl.LOCK_EX)\n\
         \x20       m = mmap.mmap(f.fileno(), 0); m[0:3] = b'abc'; m.flush(); m.close()\n\
         \x20   os.rename(d + '/a/f', d + '/c/g'); os.link(d + '/c/g', d + '/a/b/h'); os.symlink('g', d + '/c/s')\n\
         \x20   os.mkfifo(d + '/fifo'); shutil.copytree(d + '/c', d + '/e', symlinks=True); os.truncate(d + '/e/g', 3)\n\
         \x20   head = open(d + '/e/g').read(); tree = sorted(os.listdir(d))\n\
         \x20   shutil.rmtree(d + '/a')\n\
         anonymous = mmap.mmap(-1, 1 << 20); anonymous[5] = 1\n\
         shared = tempfile.NamedTemporaryFile(dir='/dev/shm'); shared.write(b'1'); shared.flush()\n\
         print(json.dumps([head, tree, anonymous[5], os.stat(shared.name).st_size]))",
    );
    assert_eq!(seen, value!(["abc", ["a", "c", "e", "fifo"], 1, 1]));
}

#[test]
fn signals_timers_limits_and_the_clock() {
    if !ready() {
        return;
    }
    let code = "import os, resource, signal, time\n\
        hits = []\n\
        signal.signal(signal.SIGALRM, lambda *a: hits.append('alarm'))\n\
        signal.setitimer(signal.ITIMER_REAL, 0.05); signal.pause()\n\
        signal.signal(signal.SIGUSR1, lambda *a: hits.append('usr1')); os.kill(os.getpid(), signal.SIGUSR1)\n\
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); os.nice(1); os.sched_setaffinity(0, os.sched_getaffinity(0))\n\
        print(hits, time.monotonic() > 0, len(os.getloadavg()), len(os.urandom(4)))";
    assert_eq!(printed(code), "['alarm', 'usr1'] True 3 4");
}
