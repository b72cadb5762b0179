// Package repository keeps the objects of backups: in a folder, or in a bucket of an S3 server.
//
// An object has a name and bytes. It is compressed (zstd, RFC 8878), checksummed (SHA-256 of what was put and of what is
// stored), and encrypted if there are recipients (age, https://age-encryption.org/v1). It is there as a whole or not at
// all, and it is never changed: a name that exists is refused. What a reader gets is checked while it is read, and an
// error names the object that is damaged. docs/design/repository.md has the format and the reasons.
//
// Errors are *sqlstate.Error:
//
//	58P01 no such object, or no repository     42710 the name exists         XX001 damaged, or another object
//	53100 the repository is full               42501 not allowed             58030 gone, slow, or an error of the medium
//	55P03 locked by somebody else              F0000 no identity, no recipient, or settings that do not fit
//	57014 the caller's context ended           22023 a name, URL or option that makes no sense
//
// Buckets need the driver: a program imports backup/repository/s3 for its effect, so that programs that have no use for
// an S3 client do not get one.
package repository
