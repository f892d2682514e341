//! Kubernetes' own libraries. What the rows expect was seen in the API server's environment of 1.36.

use serde_json::json;

use crate::{all_fail, all_true, run};

#[test]
fn quantities() {
    all_true(&[
        "quantity('1Gi').isGreaterThan(quantity('1G')) && quantity('500m').isLessThan(quantity('1'))",
        "quantity('1k').compareTo(quantity('1000')) == 0 && quantity('1').compareTo(quantity('2')) == -1",
        "quantity('0.5') == quantity('500m') && quantity('1e3') == quantity('1k') && quantity('1E3') == quantity('1k')",
        "quantity('1Gi').asInteger() == 1073741824 && quantity('50k').isInteger() && quantity('1.G').asInteger() == 1000000000",
        "quantity('50k').add(quantity('20k')).asInteger() == 70000 && quantity('50k').sub(20000).asInteger() == 30000",
        "quantity('1').sub(-9223372036854775807 - 1).asInteger() == -9223372036854775807", // as Kubernetes has it
        "quantity('50k').add(20).sub(quantity('100k')).asInteger() == -49980",
        "sign(quantity('-5')) == -1 && sign(quantity('0')) == 0 && sign(quantity('5')) == 1",
        "quantity('50.703k').asApproximateFloat() == 50703.0 && quantity('1.5Gi').asApproximateFloat() == 1610612736.0",
        "sign(quantity('1n')) == 1 && quantity('0.1n') == quantity('1n') && quantity('-0.1n') == quantity('-1n')",
        "quantity('1500m').add(quantity('500m')) == quantity('2') && quantity('1').sub(quantity('1m')) == quantity('0.999')",
        "quantity('0').sub(quantity('1k')).asInteger() == -1000 && quantity('1').add(quantity('0m')).isInteger()",
        "isQuantity('20') && isQuantity('20Mi') && isQuantity('.5') && isQuantity('5.') && isQuantity('1E')",
        "!isQuantity('') && !isQuantity('20 Mi') && !isQuantity('1.3Gx') && !isQuantity('1..2') && !isQuantity('é')",
        "!isQuantity('20mi') && !isQuantity('1e') && !isQuantity('1Ki ') && !isQuantity('1-')",
        "dyn(quantity('1')) in [quantity('1k').sub(999)] && quantity('1') != quantity('2')",
    ]);
    all_fail(&[
        ("quantity('10mb')", "quantities must match the regular expression"),
        ("quantity('10Mm')", "unable to parse quantity's suffix"),
        ("quantity('1m').asInteger()", "cannot convert value to integer"),
        ("dyn(quantity('1')) < dyn(quantity('2'))", "no such overload"),
        ("quantity('1').sign()", "found no matching overload"),
        ("dyn(quantity('1')) == 1", "no such overload: _==_(kubernetes.Quantity, int)"),
        ("string(dyn(quantity('1')))", "no such overload"),
        ("quantity('1')", "cannot be written as JSON"),
    ]);
}

/// Which quantities are integers depends on how Kubernetes keeps them.
#[test]
fn quantities_that_kubernetes_keeps_as_decimals_are_no_integers() {
    all_true(&[
        "!quantity('1.5Gi').isInteger() && !quantity('10.0').isInteger() && !quantity('1000m').isInteger()",
        "quantity('1E').isInteger() && !quantity('10E').isInteger() && !quantity('7Ei').isInteger()",
        "quantity('999999999999999999').isInteger() && !quantity('1000000000000000000').isInteger()",
        "quantity('1024Gi').isInteger() && !quantity('100Ti').isInteger() && !quantity('0m').isInteger()",
        "!quantity('1500m').add(quantity('500m')).isInteger() && quantity('1k').add(1).isInteger()",
        // Only binary suffixes have a greatest value.
        "quantity('8Ei') == quantity('9Ei') && quantity('10E') != quantity('11E')",
        // Signs and points alone are nothing.
        "quantity('.') == quantity('0') && quantity('-') == quantity('+') && quantity('k') == quantity('0')",
        "quantity('9999999999999999999999999999999999999G').isGreaterThan(quantity('1G'))",
        "quantity('1e400').isGreaterThan(quantity('1e399')) && quantity('-1e400').isLessThan(quantity('-1e399'))",
        "isQuantity('1e9999999999')",
        "quantity('9223372036854775807').add(1).compareTo(quantity('9223372036854775808')) == 0",
    ]);
}

#[test]
fn addresses() {
    all_true(&[
        "ip('1.2.3.4').family() == 4 && ip('::').family() == 6 && type(ip('::1')) == net.IP",
        "ip('0.0.0.0').isUnspecified() && ip('::').isUnspecified() && !ip('::1').isUnspecified()",
        "ip('127.255.0.1').isLoopback() && ip('::1').isLoopback() && !ip('128.0.0.1').isLoopback()",
        "ip('224.0.0.255').isLinkLocalMulticast() && !ip('224.0.1.0').isLinkLocalMulticast()",
        "ip('ff12::1').isLinkLocalMulticast() && !ip('ff03::1').isLinkLocalMulticast()",
        "ip('169.254.1.1').isLinkLocalUnicast() && ip('febf::1').isLinkLocalUnicast() && !ip('fec0::1').isLinkLocalUnicast()",
        "ip('10.0.0.1').isGlobalUnicast() && ip('fd00::1').isGlobalUnicast() && ip('240.0.0.1').isGlobalUnicast()",
        "!ip('255.255.255.255').isGlobalUnicast() && !ip('0.0.0.0').isGlobalUnicast() && !ip('224.0.0.1').isGlobalUnicast()",
        "!ip('ff0e::1').isGlobalUnicast() && !ip('::1').isGlobalUnicast() && !ip('fe80::1').isGlobalUnicast()",
        "string(ip('1:0:0:2:0:0:0:3')) == '1:0:0:2::3' && string(ip('0:0:1:0:0:1:0:0')) == '::1:0:0:1:0:0'",
        "string(ip('1:0:2:3:4:5:6:7')) == '1:0:2:3:4:5:6:7' && string(ip('::1.2.3.4')) == '::102:304'",
        "ip.isCanonical('127.0.0.1') && ip.isCanonical('2001:db8::1') && !ip.isCanonical('2001:DB8::1')",
        "!ip.isCanonical('2001:db8:0:0:0:0:0:1') && ip('2001:DB8::1') == ip('2001:db8::1')",
        "['::ffff', '1:2:3:4:5:6:7::', '::2:3:4:5:6:7:8', '1:2:3:4:5:6:1.2.3.4'].all(a, isIP(a))",
        "['', '::ffff:1.2.3.4', '::ffff:102:304', 'fe80::1%eth0', '::1%', '1.2.3', '1.2.3.04', '1.2.3.256', '1.2.3.4.', '1.2.3.4 '].all(a, !isIP(a))",
        "['1::2:3:4:5:6:7:8', '1:2:3:4:5:6:7:8::', '00001::', ':1', '1:', '[::1]', '+1.2.3.4', '0x7f.0.0.1', '１.2.3.4'].all(a, !isIP(a))",
    ]);
    let parsed = "parse error during conversion from string: ParseAddr";
    let rows = [
        ("ip('1.2.3')", format!("IP Address \"1.2.3\" {parsed}(\"1.2.3\"): IPv4 address too short")),
        ("ip('x')", format!("{parsed}(\"x\"): unable to parse IP")),
        ("ip('%x')", format!("{parsed}(\"%x\"): missing IPv6 address")),
        ("ip('1.2.3.04')", "IPv4 field has octet with leading zero".to_owned()),
        ("ip('1..2')", "IPv4 field must have at least one digit (at \".2\")".to_owned()),
        ("ip('1.2.3.4.5')", "IPv4 address too long".to_owned()),
        ("ip('::1::')", "multiple :: in address (at \":\")".to_owned()),
        ("ip('1:2:3:4:5:6:7:8:9')", "trailing garbage after address (at \"9\")".to_owned()),
        ("ip('1:2')", "address string too short".to_owned()),
        ("ip('1:g')", "each colon-separated field must have at least one digit (at \"g\")".to_owned()),
        ("ip('1:2:3:4:5:6:7::8')", "the :: must expand to at least one field of zeros".to_owned()),
        ("ip('fe80::1%eth0')", "IP address \"fe80::1%eth0\" with zone value is not allowed".to_owned()),
        ("ip('::ffff:0:0')", "IPv4-mapped IPv6 address \"::ffff:0:0\" is not allowed".to_owned()),
        ("ip.isCanonical('x')", "unable to parse IP".to_owned()),
        ("ip(dyn(1))", "no such overload: ip(int)".to_owned()),
        ("dyn(ip('1.2.3.4')) < dyn(ip('1.2.3.5'))", "no such overload".to_owned()),
        ("dyn(ip('1.2.3.4')) == '1.2.3.4'", "no such overload: _==_(net.IP, string)".to_owned()),
    ];
    all_fail(&rows.iter().map(|(source, message)| (*source, message.as_str())).collect::<Vec<_>>());
}

#[test]
fn networks() {
    all_true(&[
        "cidr('10.1.2.3/8').ip() == ip('10.1.2.3') && cidr('10.1.2.3/8').prefixLength() == 8",
        "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && cidr('10.1.2.3/8') != cidr('10.0.0.0/8')",
        "string(cidr('2001:db8:ffff::1/33').masked()) == '2001:db8:8000::/33' && string(cidr('1.2.3.4/0').masked()) == '0.0.0.0/0'",
        "string(cidr('2001:DB8::1/33')) == '2001:db8::1/33' && type(cidr('::/0')) == net.CIDR",
        "cidr('10.0.0.0/8').containsIP('10.1.2.3') && !cidr('10.0.0.0/8').containsIP(ip('11.1.2.3'))",
        "cidr('0.0.0.0/0').containsIP('1.2.3.4') && !cidr('::/0').containsIP('1.2.3.4') && cidr('::/0').containsIP('ff::')",
        "cidr('10.9.9.9/8').containsIP('10.0.0.1') && cidr('::1/128').containsIP('::1') && !cidr('::1/128').containsIP('::')",
        "!cidr('2001:db8::/33').containsIP('2001:db8:8000::') && cidr('1.2.3.4/32').containsIP('1.2.3.4')",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR('10.0.0.0/8')",
        "cidr('10.0.0.0/8').containsCIDR(cidr('10.9.9.9/8')) && !cidr('0.0.0.0/0').containsCIDR('::/0')",
        "['1.2.3.4/0', '1.2.3.4/32', '::/128'].all(c, isCIDR(c))",
        "['1.2.3.4', '1.2.3.4/', '1.2.3.4/33', '::/129', '1.2.3.4/+8', '1.2.3.4/08', '1.2.3.4/00', '1.2.3.4/-1', '1.2.3.4/8/8', '/8', '::ffff:1.2.3.4/100', 'fe80::1%a/8'].all(c, !isCIDR(c))",
    ]);
    all_fail(&[
        ("cidr('1.2.3.4/33')", "netip.ParsePrefix(\"1.2.3.4/33\"): prefix length out of range"),
        ("cidr('1.2.3.4')", "netip.ParsePrefix(\"1.2.3.4\"): no '/'"),
        ("cidr('1.2.3.4/08')", "bad bits after slash: \"08\""),
        ("cidr('1.2.3.4/99999999999999999999')", "bad bits after slash"),
        ("cidr('x/8')", "ParseAddr(\"x\"): unable to parse IP"),
        ("cidr('fe80::1%a/8')", "IPv6 zones cannot be present in a prefix"),
        ("cidr('::ffff:1.2.3.4/100')", "IPv4-mapped IPv6 address \"::ffff:1.2.3.4/100\" is not allowed"),
        ("cidr('10.0.0.0/8').containsIP('x')", "no such overload"),
        ("cidr('10.0.0.0/8').containsIP(dyn(1))", "no such overload"),
        ("cidr('10.0.0.0/8').containsCIDR('x')", "network address parse error during conversion from string"),
        ("cidr('10.0.0.0/8')", "cannot be written as JSON"),
    ]);
}

#[test]
fn urls() {
    all_true(&[
        "url('https://example.com:80/').getHost() == 'example.com:80' && url('HTTPS://A').getScheme() == 'https'",
        "url('https://example.com:80/').getHostname() == 'example.com' && url('https://example.com:80/').getPort() == '80'",
        "url('https://[::1]:80/').getHost() == '[::1]:80' && url('https://[::1]:80/').getHostname() == '::1'",
        "url('https://[fe80::1%25e%20th]').getHost() == '[fe80::1%e th]' && url('https://a:').getPort() == ''",
        "url('https://user:pa@ss@example.com/').getHost() == 'example.com' && url('http:///path').getHost() == ''",
        "url('https://a/path with spaces/').getEscapedPath() == '/path%20with%20spaces/'",
        "url('https://a/é').getEscapedPath() == '/%C3%A9' && url('https://a/a%2fb').getEscapedPath() == '/a%2fb'",
        "url('https://a/[a]!(b)*').getEscapedPath() == '/[a]!(b)*' && url('https://a/%ff').getEscapedPath() == '/%ff'",
        "url('/a//b').getEscapedPath() == '/a//b' && url('*').getEscapedPath() == '*' && url('/p').getScheme() == ''",
        "url('//host/path').getHost() == 'host' && url('///path').getEscapedPath() == '///path'",
        "url('mailto:a@b').getScheme() == 'mailto' && url('mailto:a@b').getEscapedPath() == '' && url('mailto:a@b').getHost() == ''",
        "url('foo://a:1:2').getHostname() == 'a:1' && url('foo://a:1:2').getPort() == '2'",
        "url('https://a/x?a=1&a=2&b=&c&=d&&e=%41+b&f;g=1&h=%zz#x').getQuery() == {'a': ['1', '2'], 'b': [''], 'c': [''], '': ['d'], 'e': ['A b']}",
        "url('https://a/x').getQuery() == {} && url('https://a/x??b').getQuery() == {'?b': ['']}",
        "url('https://a') == url('HTTPS://a') && url('https://a') != url('https://a/') && url('/a#b#c') == url('/a#b%23c')",
        "url('https://a/x?') != url('https://a/x') && url('https://u@a') != url('https://u:@a') && url('http:/x') != url('http:///x')",
        "['https://example.com', '/x', 'http://', 'http://:80', 'a:', '//a:b/c', '*'].all(u, isURL(u))",
        "['', 'example.com', '1a://x', ':a', 'é://a', 'https://a b', 'https://a:b', 'https://a:1:2', 'https://[1.2.3.4]', 'https://a{b', 'https://a#f', 'https://a/%zz', 'https://a/\\n'].all(u, !isURL(u))",
    ]);
    all_fail(&[
        ("url('a')", "URL parse error during conversion from string: parse \"a\": invalid URI for request"),
        ("url('')", "parse \"\": empty url"),
        ("url(':a')", "missing protocol scheme"),
        ("url('https://a:b')", "invalid port \":b\" after host"),
        ("url('//a:b')", "invalid port \":b\" after host"),
        ("url('https://[x]')", "invalid host: ParseAddr(\"x\"): unable to parse IP"),
        ("url('https://[1.2.3.4]')", "invalid IP-literal"),
        ("url('https://[::1')", "missing ']' in host"),
        ("url('https://us<er@a/')", "net/url: invalid userinfo"),
        ("url('https://a b')", "invalid character \" \" in host name"),
        ("url('https://a%20b')", "invalid URL escape \"%20\""),
        ("url('https://a/%zz')", "invalid URL escape \"%zz\""),
        ("url('https://a/%')", "invalid URL escape \"%\""),
        ("url('https://a/\\n')", "parse \"https://a/\\n\": net/url: invalid control character in URL"),
        ("url('https://a/').getPath()", "undeclared reference to 'getPath'"),
        ("string(dyn(url('https://a')))", "no such overload"),
        ("url('https://a')", "cannot be written as JSON"),
    ]);
}

#[test]
fn versions() {
    all_true(&[
        "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('1.2.3').patch() == 3",
        "semver('18446744073709551615.0.0').major() == -1",
        "semver('v1.2', true) == semver('1.2.0') && semver('01.002.03', true) == semver('1.2.3') && semver('1', true) == semver('1.0.0')",
        "semver('1.2.00-rc', true) == semver('1.2.0-rc') && semver('1.2.3') == semver('1.2.3+build')",
        "semver('1.2.3-alpha').isLessThan(semver('1.2.3')) && semver('2.0.0').isGreaterThan(semver('1.9.9'))",
        "semver('1.2.3-alpha').isLessThan(semver('1.2.3-alpha.1')) && semver('1.2.3-alpha.1').isLessThan(semver('1.2.3-alpha.beta'))",
        "semver('1.2.3-beta.2').compareTo(semver('1.2.3-beta.11')) == -1 && semver('1.2.3-rc').compareTo(semver('1.2.3-beta')) == 1",
        "['1.2.3', '1.2.3--', '1.2.3-0a', '1.2.3+01', '1.2.3-a-b+c-d'].all(v, isSemver(v))",
        "['', '1.2', 'v1.2.3', '01.2.3', '1.2.3-01', '1.2.3-', '1.2.3+', '1.2.3-a..b', '1.2.3+a_b', '1.2.3.4', '1.2.3-é', ' 1.2.3', '1..3', '18446744073709551616.0.0'].all(v, !isSemver(v))",
        "isSemver('v1.0', true) && !isSemver('v1.0', false) && !isSemver(' 1.0.0', true) && !isSemver('vv1', true) && !isSemver('', true)",
    ]);
    all_fail(&[
        ("semver('')", "Version string empty"),
        ("semver('1.2')", "No Major.Minor.Patch elements found"),
        ("semver('v1.2.3')", "Invalid character(s) found in major number \"v1\""),
        ("semver('1.02.3')", "Minor number must not contain leading zeroes \"02\""),
        ("semver('1.2.3-01')", "Numeric PreRelease version must not contain leading zeroes \"01\""),
        ("semver('1.2.3-')", "Prerelease is empty"),
        ("semver('1.2.3+')", "Build meta data is empty"),
        ("semver('.2.3')", "strconv.ParseUint: parsing \"\": invalid syntax"),
        ("semver('18446744073709551616.0.0')", "value out of range"),
        ("semver('1.2-a', true)", "short version cannot contain PreRelease/Build meta data"),
        ("semver('1.2.3').isLessThan(dyn(quantity('1')))", "no such overload"),
        ("dyn(semver('1.2.3')) < dyn(semver('1.2.4'))", "no such overload"),
        ("semver('1.2.3')", "cannot be written as JSON"),
    ]);
}

#[test]
fn named_formats() {
    let valid = [
        ("dns1123Label", "['my-name', '1a', 'a']"),
        ("dns1123Subdomain", "['a.b-c.d', 'a']"),
        ("dns1035Label", "['a1']"),
        ("dns1123LabelPrefix", "['name-', 'name--', 'a-', '_-']"),
        ("dns1123SubdomainPrefix", "['a.-', 'a.b-']"),
        ("dns1035LabelPrefix", "['a1-', '1-']"),
        ("qualifiedName", "['example.com/MyName', 'A_b.c']"),
        ("labelValue", "['', 'my_value.1']"),
        ("uri", "['https://example.com', '/a']"),
        ("uuid", "['01234567-89ab-CDEF-0123-456789abcdef', '0123456789abCDEF0123456789abcdef']"),
        ("byte", "['aGVsbG8=', 'aGVsbG9=', 'YQ==', 'aGVs']"),
        ("date", "['2024-02-29', '0000-01-01']"),
        (
            "datetime",
            "['2024-02-29T12:00:00Z', '2024-02-29t12:00:00z', '2024-02-29T12:00:00.123+25:00', '2024-02-29T12:00:00x5Z', '2024-02-29T12:00:00ZT']",
        ),
    ];
    let invalid = [
        ("dns1123Label", "['', 'My', 'my.name', 'name-', '-', 'é']"),
        ("dns1123Subdomain", "['', 'a..b', 'a.-b']"),
        ("dns1035Label", "['', '1a', 'a-']"),
        ("dns1123LabelPrefix", "['-', 'é-', '--a']"),
        ("dns1123SubdomainPrefix", "['-', '.a-']"),
        ("dns1035LabelPrefix", "['-', '1a-']"),
        ("qualifiedName", "['', 'a/b/c', '/b', 'b/', '-a', 'A/b']"),
        ("labelValue", "['my value', '-', 'a-']"),
        ("uri", "['', 'example.com']"),
        (
            "uuid",
            "['', '01234567-89ab', '0123456789abCDEF0123456789abcdefa', '01234567--89ab-CDEF-0123-456789abcde']",
        ),
        ("byte", "['', 'aGVsbG8', 'aG=s', 'aGVs\\n', '====']"),
        ("date", "['', '2023-02-29', '2024-2-29', '2024-02-30', '2024-13-01', '2024-02-29 ', '12024-02-29']"),
        (
            "datetime",
            "['', '2024-02-29', '2024-02-29T24:00:00Z', '2024-02-29T12:00:60Z', '2024-02-29T12:00:00', '2024-02-29T12:00:00.Z', '2023-02-29T12:00:00Z', '2024-02-29T12:00:0éZ']",
        ),
    ];
    for (name, texts) in valid {
        all_true(&[&format!("{texts}.all(text, !format.{name}().validate(text).hasValue())")]);
    }
    for (name, texts) in invalid {
        all_true(&[&format!("{texts}.all(text, format.{name}().validate(text).hasValue())")]);
    }
    all_true(&[
        "format.named('dns1123Label').value() == format.dns1123Label() && format.uri() != format.uuid()",
        "!format.named('DNS1123Label').hasValue() && !format.named('').hasValue()",
    ]);
    all_fail(&[
        ("format.nothing()", "undeclared reference to 'format'"),
        ("format.uri().validate(dyn(1))", "no such overload"),
        ("format.uri()", "cannot be written as JSON"),
    ]);
}

#[test]
fn formats_say_what_is_wrong_as_kubernetes_does() {
    let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
                 and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                 '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
    let key = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
               alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
               '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let long = "a".repeat(64);
    let rows = [
        ("dns1123Label", "My.Name".to_owned(), json!([label])),
        ("dns1123Label", "my.name".to_owned(), json!(["must not contain dots"])),
        ("dns1123Label", long.clone(), json!(["must be no more than 63 characters"])),
        (
            "dns1123Label",
            format!("{long}.a"),
            json!(["must be no more than 63 characters", "must not contain dots"]),
        ),
        ("labelValue", long, json!(["must be no more than 63 bytes"])),
        ("qualifiedName", "/b".to_owned(), json!(["prefix part must be non-empty"])),
        ("qualifiedName", String::new(), json!(["name part must be non-empty", key])),
        ("uri", "example.com".to_owned(), json!(["parse \"example.com\": invalid URI for request"])),
        ("uuid", "x".to_owned(), json!(["does not match the UUID format"])),
        ("byte", "x".to_owned(), json!(["invalid base64"])),
        ("date", "x".to_owned(), json!(["invalid date"])),
        ("datetime", "x".to_owned(), json!(["invalid datetime"])),
    ];
    for (name, text, faults) in rows {
        assert_eq!(run(&format!("format.{name}().validate('{text}').value()")), Ok(faults), "{name} {text}");
    }
}

#[test]
fn lists_of_optionals_are_unwrapped() {
    all_true(&[
        "optional.unwrap([optional.of(1), optional.none(), optional.of(2)]) == [1, 2]",
        "[optional.of(1), optional.none()].unwrapOpt() == [1] && [].unwrapOpt() == []",
    ]);
    all_fail(&[
        ("dyn([1]).unwrapOpt()", "no such overload"),
        ("optional.unwrap(dyn(1))", "no such overload"),
    ]);
}
