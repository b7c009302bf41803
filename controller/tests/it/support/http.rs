//! A small HTTP client over TCP and Unix sockets: one request a connection, so that nothing is shared or pooled.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(180);

#[derive(Debug, Clone)]
pub(crate) enum Address {
    Tcp(u16),
    Unix(PathBuf),
}

/// What came back.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Checks that this is an error as the contract wants it.
    #[track_caller]
    pub(crate) fn is_problem(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let body = self.json();
        assert_eq!(body["status"], status, "{body}");
        assert_eq!(body.get("reward"), Some(&Value::Null), "{body}");
        for field in ["type", "title", "detail"] {
            assert!(body[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {body}");
        }
        body
    }
}

impl Address {
    pub(crate) fn connect_tcp(port: u16) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    fn connect(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(port) => Box::new(Self::connect_tcp(*port)?),
            Self::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
        })
    }

    /// Sends one request and reads the whole answer.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        let mut stream = self.connect()?;
        let head = head(method, path, headers, body.len());
        stream.write_all(head.as_bytes())?;
        // A server that refuses a long body may stop reading it.
        match stream.write_all(body) {
            Err(error)
                if !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) =>
            {
                return Err(error);
            }
            Ok(()) | Err(_) => {}
        }
        let mut bytes = Vec::new();
        let mut buffer = [0u8; 65536];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => bytes.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset && !bytes.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        parse(&bytes).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, String::from_utf8_lossy(&bytes).into_owned())
        })
    }
}

/// An answer that is read line by line while it comes.
pub(crate) struct Lines {
    stream: BufReader<TcpStream>,
    pub(crate) head: String,
    /// Bytes left of the chunk that is being read; `None` after the last.
    chunk: Option<usize>,
}

impl Lines {
    /// Sends a request and reads the answer's head.
    pub(crate) fn request(port: u16, path: &str, headers: &[(&str, &str)], body: &Value) -> io::Result<Self> {
        Self::of("POST", port, path, headers, &body.to_string())
    }

    /// Asks for something that goes on.
    pub(crate) fn get(port: u16, path: &str, headers: &[(&str, &str)]) -> io::Result<Self> {
        Self::of("GET", port, path, headers, "")
    }

    fn of(method: &str, port: u16, path: &str, headers: &[(&str, &str)], body: &str) -> io::Result<Self> {
        let mut stream = Address::connect_tcp(port)?;
        stream.write_all(head(method, path, headers, body.len()).as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let mut lines = Self { stream: BufReader::new(stream), head: String::new(), chunk: Some(0) };
        while !lines.head.ends_with("\r\n\r\n") {
            if lines.stream.read_line(&mut lines.head)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(lines)
    }

    /// The next document; `None` after the end that the server marked.
    pub(crate) fn next(&mut self) -> io::Result<Option<Value>> {
        self.line()?.map(|line| serde_json::from_str(&line).map_err(io::Error::other)).transpose()
    }

    /// The next line; `None` after the end that the server marked.
    pub(crate) fn line(&mut self) -> io::Result<Option<String>> {
        let mut line = Vec::new();
        loop {
            let byte = match self.byte()? {
                Some(b'\n') => return Ok(Some(String::from_utf8_lossy(&line).into_owned())),
                Some(byte) => byte,
                None if line.is_empty() => return Ok(None),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            };
            line.push(byte);
        }
    }

    fn byte(&mut self) -> io::Result<Option<u8>> {
        if self.chunk == Some(0) {
            let mut size = String::new();
            // The end of the chunk before is an empty line.
            while size.trim().is_empty() {
                if self.stream.read_line(&mut size)? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            let size = usize::from_str_radix(size.trim(), 16).map_err(io::Error::other)?;
            self.chunk = (size > 0).then_some(size);
        }
        let Some(left) = &mut self.chunk else { return Ok(None) };
        *left -= 1;
        let mut byte = [0u8];
        self.stream.read_exact(&mut byte)?;
        Ok(Some(byte[0]))
    }
}

/// A request's head, with the blank line.
pub(crate) fn head(method: &str, path: &str, headers: &[(&str, &str)], length: usize) -> String {
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: {length}\r\n"
    );
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head + "\r\n"
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<_> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let length = headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .and_then(|(_, value)| value.parse().ok());
    // An answer that was cut is none.
    length.is_none_or(|length: usize| length == body.len()).then(|| Answer {
        status,
        headers,
        body: body.to_owned(),
    })
}
