// Registry serves the images of docker-archives for pulling, as a container registry does: what the node's
// images with the pull policy Always, and names of registries out of reach, are pulled from.
//
//	registry ADDRESS ARCHIVE...
//
// Any host may stand before an image's name: containerd says which one it means as ?ns=HOST.
package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"regexp"
	"strings"
)

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"
)

type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

// A part of an archive.
type blob struct {
	archive      string
	offset, size int64
}

type registry struct {
	blobs     map[string]blob   // by digest
	manifests map[string][]byte // by digest
	tags      map[string]string // digest by "docker.io/library/busybox:latest"
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// Adds the images of one archive. Its members are served from where they are.
func (r *registry) add(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()

	var images []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	members := map[string]descriptor{}
	for reader := tar.NewReader(file); ; {
		header, err := reader.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		// The reader does not read ahead: here the member's data begins.
		offset, err := file.Seek(0, io.SeekCurrent)
		if err != nil {
			return err
		}
		hash := sha256.New()
		var into io.Writer = hash
		var text strings.Builder
		if header.Name == "manifest.json" {
			into = &text
		}
		if _, err := io.Copy(into, reader); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if header.Name == "manifest.json" {
			if err := json.Unmarshal([]byte(text.String()), &images); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			continue
		}
		sum := fmt.Sprintf("sha256:%x", hash.Sum(nil))
		members[header.Name] = descriptor{Digest: sum, Size: header.Size}
		r.blobs[sum] = blob{path, offset, header.Size}
	}

	for _, image := range images {
		described := manifest{SchemaVersion: 2, MediaType: manifestType, Config: members[image.Config]}
		described.Config.MediaType = configType
		for _, name := range image.Layers {
			layer := members[name]
			layer.MediaType = layerType
			described.Layers = append(described.Layers, layer)
		}
		data, err := json.Marshal(described)
		if err != nil {
			return err
		}
		sum := digest(data)
		r.manifests[sum] = data
		for _, tag := range image.RepoTags {
			r.tags[tag] = sum
		}
	}
	return nil
}

var address = regexp.MustCompile(`^/v2/(.+)/(manifests|blobs)/([^/]+)$`)

func (r *registry) ServeHTTP(out http.ResponseWriter, request *http.Request) {
	log.Print(request.Method, " ", request.URL)
	if request.Method != http.MethodGet && request.Method != http.MethodHead {
		http.Error(out, "pulling only", http.StatusMethodNotAllowed)
		return
	}
	if request.URL.Path == "/v2/" {
		return
	}
	parts := address.FindStringSubmatch(request.URL.Path)
	if parts == nil {
		http.NotFound(out, request)
		return
	}
	name, kind, reference := parts[1], parts[2], parts[3]
	if kind == "blobs" {
		r.serveBlob(out, request, reference)
		return
	}
	sum := reference
	if !strings.HasPrefix(reference, "sha256:") {
		sum = r.tags[request.URL.Query().Get("ns")+"/"+name+":"+reference]
	}
	data, known := r.manifests[sum]
	if !known {
		http.NotFound(out, request)
		return
	}
	out.Header().Set("Content-Type", manifestType)
	out.Header().Set("Docker-Content-Digest", sum)
	out.Header().Set("Content-Length", fmt.Sprint(len(data)))
	if request.Method == http.MethodGet {
		out.Write(data)
	}
}

func (r *registry) serveBlob(out http.ResponseWriter, request *http.Request, sum string) {
	found, known := r.blobs[sum]
	if !known {
		http.NotFound(out, request)
		return
	}
	file, err := os.Open(found.archive)
	if err != nil {
		http.Error(out, err.Error(), http.StatusInternalServerError)
		return
	}
	defer file.Close()
	out.Header().Set("Content-Type", "application/octet-stream")
	out.Header().Set("Content-Length", fmt.Sprint(found.size))
	out.Header().Set("Docker-Content-Digest", sum)
	if request.Method == http.MethodGet {
		io.Copy(out, io.NewSectionReader(file, found.offset, found.size))
	}
}

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: registry ADDRESS ARCHIVE...")
	}
	r := &registry{map[string]blob{}, map[string][]byte{}, map[string]string{}}
	for _, path := range os.Args[2:] {
		if err := r.add(path); err != nil {
			log.Fatal(err)
		}
	}
	log.Printf("serving %d images on %s", len(r.tags), os.Args[1])
	log.Fatal(http.ListenAndServe(os.Args[1], r))
}
