# A package of spack.  In a checkout or an unpacked source archive:
#
#     spack repo create graphhooks-repo graphhooks-repo
#     cp -r packages/spack graphhooks-repo/packages/graphhooks
#     spack repo add graphhooks-repo
#     spack develop --path "$PWD" graphhooks@1.0.3   # in an environment
#     spack install graphhooks
#
# Whoever takes it for a release writes the archive's checksum in place of the
# zeros, and where the archive is.
#
# SPDX-License-Identifier: Apache-2.0
"""graphhooks for spack."""

import os

from spack.package import *


class Graphhooks(AutotoolsPackage):
    """CUDA graphs for parts of a training step, bitwise equal to eager.  The
    library loads the CUDA driver when it is used."""

    url = "file:///path/to/graphhooks-1.0.3.tar.gz"

    license("Apache-2.0")

    version("1.0.3", sha256="0" * 64)

    variant("tools", default=True,
            description="Build graphhooks plan, which reads JSON")
    variant("python", default=True, description="Install the Python package")

    extends("python", when="+python")

    depends_on("c", type="build")
    depends_on("autoconf", type="build")
    depends_on("automake", type="build")
    depends_on("libtool", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("jansson@2.10:", when="+tools")
    depends_on("python@3.9:", when="+python", type=("build", "run"))
    depends_on("py-pip", when="+python", type="build")
    depends_on("py-setuptools@61:", when="+python", type="build")

    conflicts("platform=darwin", msg="graphhooks is for Linux")
    conflicts("platform=windows", msg="graphhooks is for Linux")

    def configure_args(self):
        return ["--without-cuda", *self.with_or_without("jansson",
                                                        variant="tools")]

    @run_after("install", when="+python")
    def install_python(self):
        with working_dir(os.path.join(self.stage.source_path, "hosts",
                                      "pytorch")):
            pip("install", "--no-deps", "--no-build-isolation",
                f"--prefix={self.prefix}", "--config-settings",
                "library=none", ".")

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def train(self):
        Executable(self.prefix.bin.join("gh-engine"))(
            "--driver", "soft", "--steps", "6", "--microbatches", "4,6,3",
            "--compare", "eager,graph,graph+offload", "--quiet")
