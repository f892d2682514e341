use crate::process::run;

#[test]
fn every_shell_has_a_script_that_knows_the_commands() {
    for (shell, sign) in
        [("bash", "complete -F"), ("zsh", "#compdef sallyport"), ("fish", "complete -c sallyport")]
    {
        let script = run(["completion", shell]).ended(0).stdout;
        assert!(script.contains(sign), "{shell}");
        for command in [
            "dev",
            "review",
            "cel",
            "certs",
            "doctor",
            "unfreeze",
            "completion",
            "policy-dir",
            "kubeconfig",
            "params",
            "authorizer",
            "cost",
        ] {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
    run(["completion", "sh"]).ended(2);
}

#[test]
fn help_and_version_go_to_standard_output_and_explain_exit_status() {
    assert!(run(["--version"]).ended(0).stdout.starts_with("sallyport 0."));
    for arguments in [&["--help"] as &[_], &["review", "--help"]] {
        let help = run(arguments).ended(0).stdout;
        for text in ["Examples:", "Exit status:", "denied"] {
            assert!(help.contains(text), "{arguments:?}: {text}");
        }
    }
    for command in ["dev", "cel", "certs", "doctor"] {
        assert!(run([command, "--help"]).ended(0).stdout.contains("Examples:"), "{command}");
    }
    run([] as [&str; 0]).ended(2);
    run(["reveiw"]).ended(2);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let mut child = crate::process::sallyport().args(["completion", "bash"]).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), stderr.as_str()), (Some(0), ""));
}
