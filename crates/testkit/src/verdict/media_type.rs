//! A `Content-Type` header as Go's `mime.ParseMediaType` takes it, which decides whether an answer is read.

/// The media type in lower case, or nothing when the header is malformed.
pub(super) fn parse(header: &str) -> Option<String> {
    let (media_type, mut rest) = match header.split_once(';') {
        Some((media_type, rest)) => (media_type, rest.trim()),
        None => (header, ""),
    };
    let media_type = media_type.trim().to_ascii_lowercase();
    let mut parts = media_type.split('/');
    let well_formed = parts.next().is_some_and(is_token) && parts.next().is_none_or(is_token);
    if !well_formed || parts.next().is_some() {
        return None;
    }
    let mut names = Vec::new();
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=')?;
        let name = name.trim().to_ascii_lowercase();
        if !is_token(&name) || names.contains(&name) {
            return None;
        }
        names.push(name);
        let after = value(after.trim_start())?.trim_start();
        rest = match after.strip_prefix(';') {
            Some(next) => next.trim(),
            None if after.is_empty() => after,
            None => return None,
        };
    }
    Some(media_type)
}

/// What follows a parameter's value, quoted or not.
fn value(text: &str) -> Option<&str> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([';', ' ', '\t']).unwrap_or(text.len());
        let (value, rest) = text.split_at_checked(end)?;
        return is_token(value).then_some(rest);
    };
    let mut escaped = false;
    for (index, character) in quoted.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return quoted.get(index + 1..),
            _ => {}
        }
    }
    None
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?=".contains(&byte))
}
