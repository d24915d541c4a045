"""OpenStack (Nova, Neutron, Glance) behind the drivers' port, on openstacksdk (the extra `openstack`)."""

from stateward.drivers.openstack.driver import OpenStackDriver

__all__ = ["OpenStackDriver"]
