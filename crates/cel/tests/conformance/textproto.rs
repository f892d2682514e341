//! A reader of Protocol Buffers' text format, as far as the conformance tests use it.

/// The fields of a message, in order. The name of an extension is in brackets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message(pub(crate) Vec<(String, Field)>);

#[derive(Clone, Debug)]
pub(crate) enum Field {
    Message(Message),
    /// A number, or a word such as `true`.
    Word(String),
    Text(Vec<u8>),
}

impl Message {
    pub(crate) fn all<'m>(&'m self, name: &'m str) -> impl Iterator<Item = &'m Field> {
        self.0.iter().filter(move |(field, _)| field == name).map(|(_, value)| value)
    }

    pub(crate) fn messages<'m>(&'m self, name: &'m str) -> impl Iterator<Item = &'m Message> {
        self.all(name).filter_map(|field| match field {
            Field::Message(message) => Some(message),
            _ => None,
        })
    }

    pub(crate) fn message(&self, name: &str) -> Option<&Message> {
        self.0.iter().rev().find_map(|(field, value)| match value {
            Field::Message(message) if field == name => Some(message),
            _ => None,
        })
    }

    /// The text of a field, or the empty string.
    pub(crate) fn text(&self, name: &str) -> String {
        self.all(name)
            .find_map(|field| match field {
                Field::Text(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
                _ => None,
            })
            .unwrap_or_default()
    }

    /// The number or word of a field.
    pub(crate) fn word(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|(field, value)| match value {
            Field::Word(word) if field == name => Some(word.as_str()),
            _ => None,
        })
    }
}

/// Reads a file; panics on what it does not understand, with the place.
pub(crate) fn read(text: &str) -> Message {
    let mut reader = Reader { text: text.as_bytes(), at: 0 };
    let message = reader.message();
    assert!(reader.at == reader.text.len(), "unexpected text at {}", reader.line());
    message
}

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
}

impl Reader<'_> {
    fn line(&self) -> usize {
        1 + String::from_utf8_lossy(&self.text[..self.at]).matches('\n').count()
    }

    /// The next byte that is neither space nor comment nor separator.
    fn peek(&mut self) -> Option<u8> {
        loop {
            match *self.text.get(self.at)? {
                b'#' => {
                    let rest = &self.text[self.at..];
                    self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                }
                byte if byte.is_ascii_whitespace() || matches!(byte, b',' | b';') => self.at += 1,
                byte => return Some(byte),
            }
        }
    }

    fn message(&mut self) -> Message {
        let mut fields = Vec::new();
        while let Some(byte) = self.peek() {
            if matches!(byte, b'}' | b'>') {
                break;
            }
            let name = if byte == b'[' {
                let end = self.at + self.text[self.at..].iter().position(|byte| *byte == b']').unwrap();
                let name = String::from_utf8_lossy(&self.text[self.at..=end]).into_owned();
                self.at = end + 1;
                name
            } else {
                self.word()
            };
            if self.peek() == Some(b':') {
                self.at += 1;
            }
            if self.peek() == Some(b'[') {
                self.at += 1;
                while self.peek() != Some(b']') {
                    let value = self.value();
                    fields.push((name.clone(), value));
                }
                self.at += 1;
            } else {
                let value = self.value();
                fields.push((name, value));
            }
        }
        Message(fields)
    }

    fn value(&mut self) -> Field {
        match self.peek() {
            Some(b'{' | b'<') => {
                self.at += 1;
                let message = self.message();
                assert!(matches!(self.peek(), Some(b'}' | b'>')), "unclosed message at {}", self.line());
                self.at += 1;
                Field::Message(message)
            }
            Some(b'"' | b'\'') => {
                let mut bytes = Vec::new();
                while let Some(quote @ (b'"' | b'\'')) = self.peek() {
                    self.string(quote, &mut bytes);
                }
                Field::Text(bytes)
            }
            _ => Field::Word(self.word()),
        }
    }

    fn word(&mut self) -> String {
        let rest = &self.text[self.at..];
        let length = rest
            .iter()
            .position(|byte| !byte.is_ascii_alphanumeric() && !matches!(byte, b'_' | b'-' | b'+' | b'.'))
            .unwrap_or(rest.len());
        assert!(length > 0, "unexpected text at line {}", self.line());
        self.at += length;
        String::from_utf8_lossy(&rest[..length]).into_owned()
    }

    fn string(&mut self, quote: u8, bytes: &mut Vec<u8>) {
        self.at += 1;
        loop {
            let byte = self.text[self.at];
            self.at += 1;
            match byte {
                byte if byte == quote => return,
                b'\\' => self.escape(bytes),
                byte => bytes.push(byte),
            }
        }
    }

    fn escape(&mut self, bytes: &mut Vec<u8>) {
        let byte = self.text[self.at];
        self.at += 1;
        let (digits, base) = match byte {
            b'x' | b'X' => (2, 16),
            b'u' => (4, 16),
            b'U' => (8, 16),
            b'0'..=b'7' => {
                self.at -= 1;
                (3, 8)
            }
            _ => {
                bytes.push(match byte {
                    b'a' => 7,
                    b'b' => 8,
                    b'f' => 12,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'v' => 11,
                    byte => byte,
                });
                return;
            }
        };
        let mut value = 0;
        for _ in 0..digits {
            let Some(digit) = char::from(self.text[self.at]).to_digit(base) else { break };
            value = value * base + digit;
            self.at += 1;
        }
        if matches!(byte, b'u' | b'U') {
            bytes.extend(char::from_u32(value).unwrap().to_string().bytes());
        } else {
            bytes.push(u8::try_from(value).unwrap());
        }
    }
}

#[test]
fn the_reader_reads() {
    let message = read("a: 'x' \"\\101\\x42\\u00e9\"  # c\nb { c: [1, -2.5e3] d <e: true> }\n[t.u/v] { }");
    assert_eq!(message.text("a"), "xABé");
    let inner = message.message("b").unwrap();
    assert_eq!(inner.all("c").count(), 2);
    assert_eq!(inner.message("d").unwrap().word("e"), Some("true"));
    assert_eq!(message.messages("[t.u/v]").count(), 1);
}
