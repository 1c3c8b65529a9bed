"""Everything that a running service consists of; made once, when the application starts."""

import time
from dataclasses import dataclass, field

from engine.backbone_cache import BackboneCache
from engine.predictor import Predictor
from engine.seen_features import SeeingVersions
from engine.version_cache import VersionCache
from learners.base_queueing import BaseQueue
from learners.teaching import Teaching
from learners.version_loader import LoadedVersion
from learners.version_map import VersionMaps
from messaging.notifier import Notifier
from service.capture import Capture
from service.metrics import Metrics
from service.session_watch import Places, SessionWatch
from service.stored_features import StoredFeatures
from service.teacher import Teacher
from service.thumbnails import Thumbnails
from service.webhook_delivery import WebhookDelivery
from store.database import Database
from store.settings import Settings


@dataclass(eq=False)
class AppContext:
    settings: Settings
    database: Database
    backbones: BackboneCache
    versions: VersionCache[LoadedVersion]
    predictor: Predictor
    metrics: Metrics
    notifier: Notifier
    stopping: bool = False
    teacher: Teacher = field(init=False)
    session_watch: SessionWatch = field(init=False)
    thumbnails: Thumbnails = field(init=False)
    capture: Capture | None = field(init=False)
    seeing: SeeingVersions = field(default_factory=SeeingVersions)
    maps: VersionMaps = field(init=False)
    features: StoredFeatures = field(init=False)
    archives: Places = field(default_factory=lambda: Places(1))  # exports, imports and zips at a time
    base_queue: BaseQueue = field(init=False)
    webhooks: WebhookDelivery = field(init=False)
    webhook_tests: Places = field(default_factory=lambda: Places(8))  # at a time
    started_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        teaching = Teaching(self.database, self.settings, self.versions, self.notifier)
        self.teacher = Teacher(teaching, self.predictor)
        self.base_queue = BaseQueue(self.database, self.settings, self.notifier)
        self.session_watch = SessionWatch(self.database, self.settings)
        self.capture = None
        if self.settings.capture != "off":
            self.capture = Capture(self.database, self.settings, self.metrics.samples)
        self.webhooks = WebhookDelivery(self.database, self.settings, self.metrics.deliveries)
        self.maps = VersionMaps(self.database)
        self.features = StoredFeatures(self.predictor)
        self.thumbnails = Thumbnails(self.predictor.decoder, self.settings.max_pixels)
