"""Amazon EC2 behind the drivers' port, on boto3 (the extra `aws`)."""

from stateward.drivers.aws.driver import AwsDriver

__all__ = ["AwsDriver"]
