//! Generates the gRPC code from the .proto file, without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = "sallyport/v1alpha1/admission.proto";
    println!("cargo:rerun-if-changed={file}");
    let descriptors = protox::compile([file], ["."])?;
    // `bytes::Bytes` for bytes fields: objects pass from the HTTP body into the call without a copy.
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
