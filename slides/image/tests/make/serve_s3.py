"""A server of S3, by moto, with the files of a directory in the bucket `slides`.

    serve_s3.py DIRECTORY

Prints a line of JSON: the address, the keys of a user who may do everything, those of a guest with a token, and the address of a
service that gives these out as the ones of virtual machines and containers do (moto has none). Then obeys lines of standard input, and
answers each with one: `check` has it check signatures and what users may do, `put KEY FILE` replaces an object, `fill COUNT` adds
empty ones. All may read the objects before. It ends with its input.
"""

import json
import logging
import os
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

os.environ["AWS_DEFAULT_REGION"] = "eu-west-1"
os.environ["AWS_ACCESS_KEY_ID"] = os.environ["AWS_SECRET_ACCESS_KEY"] = "nobody"

import boto3
from moto.server import ThreadedMotoServer

logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
address = f"http://{host}:{port}"


def client(service, **keys):
    return boto3.client(service, endpoint_url=address, **keys)


users = client("iam")
users.create_user(UserName="reader")
key = users.create_access_key(UserName="reader")["AccessKey"]
allowed = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
users.put_user_policy(UserName="reader", PolicyName="all", PolicyDocument=json.dumps(allowed))
# Temporary keys for the same, with a token.
trust = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": "*"}}]}
role = users.create_role(RoleName="guest", AssumeRolePolicyDocument=json.dumps(trust))["Role"]
users.put_role_policy(RoleName="guest", PolicyName="all", PolicyDocument=json.dumps(allowed))
guest = client("sts").assume_role(RoleArn=role["Arn"], RoleSessionName="test")["Credentials"]
objects = client("s3", aws_access_key_id=key["AccessKeyId"], aws_secret_access_key=key["SecretAccessKey"])
objects.create_bucket(Bucket="slides", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
root = Path(sys.argv[1])
for file in sorted(root.rglob("*")):
    if file.is_file():
        public = {"ACL": "public-read"}
        objects.upload_file(str(file), "slides", file.relative_to(root).as_posix(), ExtraArgs=public)


class Services(BaseHTTPRequestHandler):
    """https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html, version 2, and
    https://docs.aws.amazon.com/AmazonECS/latest/developerguide/task-iam-roles.html
    """

    def do_PUT(self):
        is_token = self.path == "/latest/api/token" and "x-aws-ec2-metadata-token-ttl-seconds" in self.headers
        self.answer(200 if is_token else 403, "token of a session" if is_token else "")

    def do_GET(self):
        roles = "/latest/meta-data/iam/security-credentials/"
        keys = {name: guest[name] for name in ["AccessKeyId", "SecretAccessKey"]} | {"Token": guest["SessionToken"]}
        keys |= {"Code": "Success", "Expiration": guest["Expiration"].strftime("%Y-%m-%dT%H:%M:%SZ")}
        answers = {"/keys": keys}
        if self.headers.get("x-aws-ec2-metadata-token") == "token of a session":
            answers |= {roles: "guest", f"{roles}guest": keys}
        answer = answers.get(self.path, "")
        self.answer(200 if answer else 401, answer if isinstance(answer, str) else json.dumps(answer))

    def answer(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


services = ThreadingHTTPServer(("127.0.0.1", 0), Services)
threading.Thread(target=services.serve_forever, daemon=True).start()
told = {"address": address, "services": f"http://127.0.0.1:{services.server_port}"}
told |= {"id": key["AccessKeyId"], "secret": key["SecretAccessKey"]}
told |= {"guest": guest["AccessKeyId"], "guest_secret": guest["SecretAccessKey"], "token": guest["SessionToken"]}
print(json.dumps(told), flush=True)

for line in sys.stdin:
    words = line.rstrip("\n").split("\t")
    if words[0] == "put":
        objects.put_object(Bucket="slides", Key=words[1], Body=Path(words[2]).read_bytes())
    elif words[0] == "fill":
        for number in range(int(words[1])):
            objects.put_object(Bucket="slides", Key=f"many/{number}.svs", Body=b"")
    else:
        plain = {"Content-Type": "text/plain"}
        request = urllib.request.Request(f"{address}/moto-api/reset-auth", b"0", plain)
        urllib.request.urlopen(request).close()
    print("done", flush=True)
