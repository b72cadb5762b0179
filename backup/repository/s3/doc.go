// Package s3 keeps repositories in buckets of S3 servers. A program imports it for its effect:
//
//	import _ "github.com/cleavedb/cleave/backup/repository/s3"
//
// A URL is s3://bucket/prefix, with these parameters:
//
//	endpoint=https://host:9000   of another server than Amazon's; else AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL
//	region=eu-central-1          else AWS_REGION or AWS_DEFAULT_REGION, else the server is asked
//	path-style=true              the bucket is in the path of requests, not in the name of the host
//
// Keys come from where Amazon's own tools look for them: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the files of
// AWS_SHARED_CREDENTIALS_FILE and AWS_PROFILE, and the machine's role. AWS_CA_BUNDLE names a file of certificates. A URL
// never has keys.
//
// The server has to know conditional writes (If-None-Match: *, of PutObject and CompleteMultipartUpload), and list what
// was written before. Amazon's does both (https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html).
package s3
